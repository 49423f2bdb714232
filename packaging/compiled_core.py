"""Compiles the core of polydomo (wire, model, protocols, web, broker, and the hot modules of server and journal) with mypyc.

    python packaging/compiled_core.py                    the package with the compiled core, in build/compiled
    python packaging/compiled_core.py --check --to DIR   the same for tests: with seams (seams.py), not optimised, built faster

Put that directory first on the path (PYTHONPATH=build/compiled) to run it. Sources that did not change are not built again. ``setup.py``
uses ``extensions`` and ``BuildExtensions`` for wheels.
"""

import argparse
import hashlib
import os
import shutil
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src/polydomo")
LAYERS = ("wire", "model", "protocols", "web", "broker")  # compiled as a whole
# Hot modules of other layers.
HOT = (
    "journal/recording/chunk.py",
    "journal/recording/client_ids.py",
    "journal/files/columns.py",
    "journal/recording/recorder.py",
    "journal/recording/trace_origin.py",
)

# Not compiled: dataclasses whose defaults are read from the class; dataclasses that programs copy and pickle, which frozen compiled ones
# do not allow; and what the libraries of clients and workers run, whose classes programs and tests inherit from and set attributes of.
INTERPRETED = (
    "broker/policy.py",
    "model/tuning.py",
    "model/retry_policy.py",
    "wire/address.py",
    "protocols/**/ends.py",
)

CONFIG = "packaging/mypyc.ini"

GROUP = "polydomo_core"
OPTIMISED = "2"
UNOPTIMISED = "0"
# Without optimisation, a third of the time goes into the headers, which each file reads anew: the modules are compiled in so many files.
BUNDLES = 16
# C compilers at a time.
JOBS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def sources() -> list[str]:
    """What is compiled, as paths below the root of the repository."""
    found = [path for layer in LAYERS for path in (ROOT / PACKAGE / layer).rglob("*.py") if path.name != "__init__.py"]
    found += [ROOT / PACKAGE / name for name in HOT]
    skipped = {path for pattern in INTERPRETED for path in (ROOT / PACKAGE).glob(pattern)}
    return sorted(str(path.relative_to(ROOT)) for path in found if path not in skipped)


def has_compiler() -> bool:
    """A C compiler and Python's headers are there."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return shutil.which(command.split()[0]) is not None and (Path(sysconfig.get_path("include")) / "Python.h").exists()


def extensions(level: str, target: str = "build/core") -> list[Extension]:
    """Translates the sources to C. Must be called in the root of the repository; ``target`` gets the C files."""
    from mypyc.build import mypycify

    os.environ["MYPYPATH"] = "src"
    made: list[Extension] = mypycify(
        [f"--config-file={ROOT / CONFIG}", *sources()],
        opt_level=level,
        debug_level="0",
        multi_file=True,  # one file would take minutes and gigabytes
        group_name=GROUP,
        target_dir=target,
    )
    for extension in made:
        # Another compiler may warn of more than the one mypyc was tested with, and looking for what deserves a warning takes half of the
        # time of a build that does not optimise.
        kept = [flag for flag in extension.extra_compile_args if flag != "-Werror"]
        extension.extra_compile_args = [*kept, "-Wno-all"]
        if level == UNOPTIMISED:
            extension.sources = bundled(extension.sources)
    return made


def bundled(paths: list[str]) -> list[str]:
    """The C files of the project's modules joined into ``BUNDLES`` files beside them, and all other files as they are."""
    modules = sorted(Path(path) for path in paths if "___" in Path(path).name)
    made = []
    for number in range(min(BUNDLES, len(modules))):
        bundle = modules[0].with_name(f"bundle_{number}.c")
        bundle.write_text("\n".join(module.read_text() for module in modules[number::BUNDLES]))
        made.append(str(bundle))
    return made + [path for path in paths if Path(path) not in modules]


class BuildExtensions(build_ext):
    """Compiles the C files side by side, and only those that changed since the last time."""

    def build_extensions(self) -> None:
        compile_all = self.compiler.compile

        def compile_one(source: str, depends: list[str], options: dict[str, Any]) -> list[str]:
            flags = [str(options.get(name)) for name in ("macros", "extra_postargs")]
            digest = hashlib.sha256("".join(flags).encode())
            for name in [source, *depends]:
                digest.update(Path(name).read_bytes())
            output_dir = options["output_dir"]
            made: list[str] = self.compiler.object_filenames([source], output_dir=output_dir)
            key = Path(made[0] + ".key")
            if not (Path(made[0]).exists() and key.exists() and key.read_text() == digest.hexdigest()):
                key.unlink(missing_ok=True)
                compile_all([source], **{**options, "depends": []})
                key.write_text(digest.hexdigest())
            return made

        def compile_each(files: list[str], depends: list[str] | None = None, **options: Any) -> list[str]:
            with ThreadPoolExecutor(JOBS) as pool:
                made = pool.map(lambda file: compile_one(file, depends or [], options), files)
                return [name for names in made for name in names]

        self.compiler.compile = compile_each
        self.parallel = JOBS
        self.force = True  # which files changed is decided here
        super().build_extensions()


def fingerprint(level: str) -> str:
    """Changes with everything that the build depends on."""
    from mypy.version import __version__ as mypy_version

    digest = hashlib.sha256(f"{sys.version} {mypy_version} {level}".encode())
    for path in sorted(Path(PACKAGE).rglob("*.py")):
        digest.update(b"%s\0%d\0" % (str(path).encode(), path.stat().st_size))
        digest.update(path.read_bytes())
    digest.update(Path(__file__).read_bytes())
    digest.update((ROOT / CONFIG).read_bytes())
    return digest.hexdigest()


def build(target: Path, level: str, for_tests: bool) -> bool:
    """Makes ``target/polydomo``, the package with the compiled core. False if it was up to date."""
    stamp = target / "fingerprint"
    work = target / "work"
    if for_tests:
        import seams

        seams.copy_with_seams(ROOT, target / "source", sources())
        os.chdir(target / "source")
    wanted = fingerprint(level)
    if stamp.exists() and stamp.read_text() == wanted:
        return False
    stamp.unlink(missing_ok=True)
    shutil.rmtree(target / "polydomo", ignore_errors=True)
    for old in target.glob(f"{GROUP}*"):
        old.unlink()
    distribution = Distribution({"name": "polydomo", "ext_modules": extensions(level, str(work))})
    command = BuildExtensions(distribution)
    command.build_lib = str(target)
    command.build_temp = str(work)
    command.ensure_finalized()
    command.run()
    shutil.copytree(PACKAGE, target / "polydomo", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    stamp.write_text(wanted)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description="Compile the core of polydomo with mypyc.")
    parser.add_argument("--to", type=Path, default=Path("build/compiled"), help="directory (default: build/compiled)")
    parser.add_argument("--check", action="store_true", help="for tests: build fast, do not optimise")
    parser.add_argument("--has-compiler", action="store_true", help="end with status 0 if there is a C compiler")
    arguments = parser.parse_args()
    if arguments.has_compiler:
        parser.exit(0 if has_compiler() else 1)
    os.chdir(ROOT)
    if not has_compiler():
        parser.exit(
            1,
            "polydomo: no C compiler, or no headers of Python: install gcc and python3-dev, or set CC\n",
        )
    target = arguments.to.resolve()
    if build(target, UNOPTIMISED if arguments.check else OPTIMISED, arguments.check):
        print(f"compiled into {target}: run it with PYTHONPATH={target}")
    else:
        print(f"{target} is up to date")


if __name__ == "__main__":
    main()
