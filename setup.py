"""What pyproject.toml cannot say: an optional C extension. Without a compiler the install goes on."""

from setuptools import Extension, setup

KERNEL = Extension(
    "spyre_emulator._dlfloat16",
    ["spyre_emulator/dlfloat16.c"],
    extra_compile_args=["-O3"],
    optional=True,
)

setup(ext_modules=[KERNEL])
