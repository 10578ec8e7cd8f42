"""What `bench/device_check.py` does on a machine with a GPU; a dry run does the same on the CPU, in small."""
