"""What bfloat16 gives a training step of the translation model on this processor.

    OMP_NUM_THREADS=1 python tests/benchmarks/nmt_step.py [repetitions] [steps]     # 3, 10

The same step (60 pairs of 13 pieces each side, made up) by turns in float32 and in bfloat16: loss, gradient, AdamW, moving average. One thread, CPU seconds a step, and the ratio pair by
pair. Where the processor has no instructions for bfloat16 both are the same step.
"""
import sys, time
from dataclasses import replace

import numpy as np
import torch

from paranmt_lab.translate.training import NmtConfig, Trainee, half_precision, translation_loss


def seconds(trainee, source, target, steps):
    "CPU seconds of a step, after two that warm up."
    for i in range(steps + 2):
        if i == 2: start = time.process_time()
        trainee.adam.zero_grad(set_to_none=True)
        with half_precision('cpu', trainee.config.bf16): loss = translation_loss(trainee.model, source, target, .1)
        (loss / target.numel()).backward()
        trainee.adam.step()
        trainee._average()
    return (time.process_time() - start) / steps


def main(repetitions=3, steps=10):
    torch.set_num_threads(1)
    draw = np.random.default_rng(0).integers(2, 6000, (2, 60, 13))
    source, target = map(torch.from_numpy, draw)
    print(f'bfloat16 instructions: {torch.cpu._is_avx512_bf16_supported()}')
    for dim, inner in ((192, 768), (256, 640)):
        config = NmtConfig('step', dim=dim, feed_forward=inner)
        pair = [Trainee(replace(config, bf16=bf16), 6000) for bf16 in (False, True)]
        took = np.array([[seconds(t, source, target, steps) for t in pair] for _ in range(repetitions)])
        ratio = took[:, 0] / took[:, 1]
        print(f'{dim} dimensions: float32 {np.median(took[:, 0]):.3f} s, bfloat16 {np.median(took[:, 1]):.3f} s, '
              f'{np.median(ratio):.2f} times faster ({ratio.min():.2f} to {ratio.max():.2f}, {repetitions} pairs of {steps} steps)')


if __name__ == '__main__': main(*map(int, sys.argv[1:]))
