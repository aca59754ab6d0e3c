"""Stands in for NVIDIA's libraries where an image has none: torch's CUDA build names them, the loader must find them.

Run with torch's folder of libraries: each library that one of them needs, that nothing here provides and that is
NVIDIA's, is made there with the functions that torch names. A call of one returns 1, which all of these libraries have
as an error. None is called where there is no GPU, and where nothing is missing (a torch for the CPU) nothing is made.
Needs gcc and binutils; standard library only.
"""

import ctypes
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

OURS = re.compile(r"lib(cu|nccl|nvrtc|nvshmem)[A-Za-z_]*\.so\.\d+")
# The driver's own: torch looks for it when asked about GPUs, and can do without.
DRIVER = "libcuda.so.1"
UNDEFINED = re.compile(r"\s+\d+: .* GLOBAL\s+DEFAULT\s+UND ([A-Za-z]\w*)(?:@(\S+))?")


def said(*command):
    """What a program prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(library):
    """The names of the libraries that one needs."""
    return re.findall(r"\(NEEDED\).*\[(.+)\]", said("readelf", "--wide", "--dynamic", library))


def provided(folder, name):
    """Whether the loader would find a library by its name, or a package of NVIDIA's has it."""
    if (folder / name).exists() or any((folder.parents[1] / "nvidia").glob(f"*/lib/{name}")):
        return True
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def missing(folder):
    """Each missing library's functions: {name of the library: {function: version, or None}}."""
    libraries = [path for path in folder.iterdir() if re.search(r"\.so(\.\d+)*$", path.name)]
    names = {name for path in libraries for name in needed(path)} - {path.name for path in libraries} - {DRIVER}
    absent = sorted(name for name in names if not provided(folder, name))
    foreign = [name for name in absent if not OURS.fullmatch(name)]
    if foreign:
        raise SystemExit(f"torch needs {', '.join(foreign)}, which this image lacks: install what has it")
    functions = defaultdict(dict, {name: {} for name in absent})
    for path in libraries:
        for function, version in UNDEFINED.findall(said("readelf", "--wide", "--dyn-syms", path)):
            owner = version if version in functions else owner_of(function, absent)
            if owner:
                functions[owner][function] = version or None
    return dict(functions)


def owner_of(function, libraries):
    """The library whose name a function without a version begins with, such as ncclSend of libnccl.so.2."""
    stems = {re.split(r"[._]", name.removeprefix("lib"))[0].lower(): name for name in libraries}
    fitting = [stem for stem in stems if function.lower().startswith(stem)]
    return stems[max(fitting, key=len)] if fitting else None


def make(folder, name, functions):
    """A library with these functions; where they have a version, of that version."""
    with tempfile.TemporaryDirectory() as made:
        source, script = Path(made, "absent.c"), Path(made, "versions")
        source.write_text("".join(f"int {function}(void) {{ return 1; }}\n" for function in sorted(functions)))
        versions = sorted({version for version in functions.values() if version})
        script.write_text("".join(f"{version} {{ global: *; }};\n" for version in versions))
        options = [f"-Wl,--version-script={script}"] if versions else []
        gcc = ["gcc", "-shared", "-fPIC", "-Os", "-s", "-w", "-nostdlib", f"-Wl,-soname,{name}", *options]
        subprocess.run([*gcc, "-o", folder / name, source], check=True)


def main():
    folder = Path(sys.argv[1])
    for name, functions in missing(folder).items():
        make(folder, name, functions)
        print(f"{name}: {len(functions)} functions that are never called")


if __name__ == "__main__":
    main()
