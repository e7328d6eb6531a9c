"""What pyproject.toml cannot say: optional C kernels. Without a compiler the install goes on."""

from setuptools import Extension, setup

ROUNDING = Extension(
    "spyre_emulator._dlfloat16",
    ["spyre_emulator/dlfloat16.c"],
    extra_compile_args=["-O3"],
    optional=True,
)

COMPARISON = Extension(
    "harness.compare._kernel",
    ["harness/compare/kernel.c"],
    # Sums of float64 in any order; float32 operations as they are written.
    extra_compile_args=[
        "-O3",
        "-fassociative-math",
        "-fno-signed-zeros",
        "-fno-trapping-math",
        "-ffp-contract=off",
    ],
    optional=True,
)

setup(ext_modules=[ROUNDING, COMPARISON])
