"""No network for a process: refused by the kernel where it can, by the interpreter everywhere.

After the resolve stage nothing may be fetched. Python code gets a PermissionError that says so; code
below Python (a Rust or C extension, another program) is refused by a seccomp filter, which every thread
and every process started later inherits.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct
import sys

REFUSED = "network access after the resolve stage is refused"

_EVENTS = ("socket.__new__", "socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname")
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_PACKET = 17

_ARCHITECTURES = {
    # machine: (AUDIT_ARCH of <linux/audit.h>, number of socket(2), offset of the first argument's low word)
    "x86_64": (0xC000003E, 41, 16),
    "aarch64": (0xC00000B7, 198, 16),
    "ppc64le": (0xC0000015, 326, 16),
    "s390x": (0x80000016, 359, 20),
}
_IO_URING_SETUP = 425
"""io_uring makes sockets without socket(2); the same number on all machines."""

_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def refuse_network() -> bool:
    """Refuse every internet socket from here on, for good. True when the kernel enforces it."""
    enforced = _filter_system_calls()
    sys.addaudithook(_refuse)
    return enforced


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event not in _EVENTS:
        return
    first = arguments[0]
    if event == "socket.__new__":
        family = arguments[1]
    else:
        family = first.family if isinstance(first, socket.socket) else socket.AF_INET
    if family in _FAMILIES:
        raise PermissionError(f"{REFUSED}: {event.removeprefix('socket.')} {arguments[1:]!r}")


def _filter_system_calls() -> bool:
    known = _ARCHITECTURES.get(platform.machine())
    if known is None:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    code = _program(*known)
    program = _Program(len(code) // 8, code)
    if libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0) == 0)


def _program(architecture: int, socket_call: int, argument: int) -> bytes:
    """Classic BPF: socket(AF_INET, AF_INET6 or AF_PACKET) fails with EACCES, io_uring with ENOSYS."""
    refuse, absent, allow = _ERRNO | errno.EACCES, _ERRNO | errno.ENOSYS, _ALLOW
    lines = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 0, 8, architecture),  # another machine's calls: allow
        (_LOAD, 0, 0, 0),
        (_EQUAL, 5, 0, _IO_URING_SETUP),
        (_EQUAL, 0, 5, socket_call),
        (_LOAD, 0, 0, argument),
        (_EQUAL, 4, 0, int(socket.AF_INET)),
        (_EQUAL, 3, 0, int(socket.AF_INET6)),
        (_EQUAL, 2, 1, _PACKET),
        (_RETURN, 0, 0, absent),
        (_RETURN, 0, 0, allow),
        (_RETURN, 0, 0, refuse),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
