"""Multiplies matrices on GPU 0 for a while: MiB to hold, busy share of each 100 ms, seconds. Share 0 holds
the memory and leaves the GPU idle."""

import os
import sys
import time

import torch

mebibytes, share, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
held = torch.empty(mebibytes * 2**20, dtype=torch.uint8, device="cuda").fill_(1)
left = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
right = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize()
print(os.getpid(), flush=True)
end = time.monotonic() + seconds
busy = 0.0
while (begin := time.monotonic()) < end:
    while share and time.monotonic() - begin < 0.1 * share:
        for _ in range(20):
            left @ right
        torch.cuda.synchronize()
    busy += time.monotonic() - begin
    time.sleep(max(0.0, 0.1 - (time.monotonic() - begin)))
print(f"busy {busy:.3f} s of {seconds} s, holding {len(held)} bytes", flush=True)
