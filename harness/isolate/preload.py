"""Imports that the fork server makes once for all its children. Imports only: no tensor work here.

A threaded operation in the server would leave every child with a thread pool that has no threads.
"""

import safetensors.torch
import torch
import torch._dynamo
import torch._functorch.aot_autograd
import torch._inductor.compile_fx
import transformers.cache_utils
import transformers.modeling_utils
import transformers.models.auto.modeling_auto
import transformers.models.auto.tokenization_auto

import harness.isolate.child
import harness.subject

LOADED = (safetensors, torch, transformers, harness)
