"""Multiplies matrices on GPU 0 for a while: MiB to hold, busy share of each period, seconds, and the period
(0.1 s). Share 0 holds the memory and leaves the GPU idle."""

import os
import sys
import time

import torch

mebibytes, share, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
period = float(sys.argv[4]) if len(sys.argv) > 4 else 0.1
held = torch.empty(mebibytes * 2**20, dtype=torch.uint8, device="cuda").fill_(1)
left = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
right = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize()
print(os.getpid(), flush=True)
end = time.monotonic() + seconds
busy = 0.0
while (begin := time.monotonic()) < end:
    while share and time.monotonic() - begin < period * share:
        for _ in range(20):
            left @ right
        torch.cuda.synchronize()
    busy += time.monotonic() - begin
    time.sleep(max(0.0, period - (time.monotonic() - begin)))
print(f"busy {busy:.3f} s of {seconds} s, holding {len(held)} bytes", flush=True)
