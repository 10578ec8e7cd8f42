"""Prints the folder that holds simde/, from the package cmeel-simde."""

from importlib.metadata import files

for file in files("cmeel-simde") or ():
    if file.as_posix().endswith("include/simde/x86/avx512.h"):
        print(file.locate().resolve().parents[2])
        break
else:
    raise SystemExit("cmeel-simde holds no simde/x86/avx512.h; install another version")
