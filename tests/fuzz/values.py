"""Values of fields that more than one kind of object has: usual ones, and those at the edges."""

COUNTS = (0, 1, 1, 2, 3, 5, 99, 2**31 - 1)
STEPS = (0, 1, 3, 5, 10, 1000, 2**40, 2**53)
CODES = (0, 1, 2, 14, 16, 17, 64, 93, 126, 127, 128, 134, 137, 139, 143, 201, 247, 255, -1, 2**31 - 1)
FORMATS = ("", "Manifest", "TorchDCP", "Megatron", "DeepSpeed", "Orbax", "Torch", "Nobody's")
RANGES = ("", "0", "0-1", "0-2", "1", "0,0", "1,0", "2-0", "0-65535", "7", "x", "-", "0-99999999999", "²")
NODES = ("n0", "n1", "n2", "n3", "n4", "n5", "n9", "")
