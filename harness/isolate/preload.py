"""What the fork server does once for all its children: imports, and a home for orphans. No tensor work here.

A threaded operation in the server would leave every child with a thread pool that has no threads.
"""

import threading
import warnings

import safetensors.torch
import torch
import torch._dynamo
import torch._functorch.aot_autograd
import torch._inductor.compile_fx
import tqdm
import transformers.cache_utils
import transformers.modeling_utils
import transformers.models.auto.modeling_auto
import transformers.models.auto.tokenization_auto

import harness.isolate.child
import harness.subject
from harness.isolate import family

LOADED = (safetensors, torch, transformers, harness)

family.adopt_orphans()
# multiprocessing's word for an orphan that ended.
warnings.filterwarnings("ignore", message="forkserver: waitpid returned unexpected pid")
# Its own lock is a semaphore of the system, made when torch first traces; a child that ends at once would leave it.
tqdm.tqdm.set_lock(threading.RLock())
