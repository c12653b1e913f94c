"""What a training step of the translation model costs on this processor, by how attention is taken and in which
precision.

    OMP_NUM_THREADS=1 python tests/benchmarks/nmt_step.py [repetitions] [steps]     # 3, 10

The same step (60 pairs of 13 pieces each side, made up) by turns: attention as its formula stands, which is how
training has it on a processor, or in PyTorch's fused kernel; in float32 or in bfloat16. Loss, gradient, AdamW, moving
average. One thread, CPU seconds a step, and how many times as long as the trainer's own step, turn by turn. Where the
processor has no instructions for bfloat16 both precisions are the same step."""
import sys
import time
from dataclasses import replace

import numpy as np
import torch

from paranmt_lab.translate.config import NmtConfig
from paranmt_lab.translate.training import Seq2SeqLearner, half_precision, translation_loss

STEPS = {f'{name}, {"bfloat16" if bf16 else "float32"}': (how, bf16)
         for name, how in (('formula', 'eager'), ('fused', 'sdpa')) for bf16 in (True, False)}


def seconds(learner, source, target, steps):
    "CPU seconds of a step, after two that warm up."
    for i in range(steps + 2):
        if i == 2: start = time.process_time()
        learner.adam.zero_grad(set_to_none=True)
        with half_precision('cpu', learner.config.bf16): loss = translation_loss(learner.model, source, target, .1)
        (loss / target.numel()).backward()
        learner.adam.step()
        learner.average.update(i + 1)
    return (time.process_time() - start) / steps


def attending(how, config):
    "A learner whose attention is taken in this way."
    learner = Seq2SeqLearner(config, 6000)
    learner.model.set_attn_implementation(how)
    return learner


def main(repetitions=3, steps=10):
    torch.set_num_threads(1)
    draw = np.random.default_rng(0).integers(2, 6000, (2, 60, 13))
    source, target = map(torch.from_numpy, draw)
    print(f'bfloat16 instructions: {torch.cpu._is_avx512_bf16_supported()}, AMX: '
          f'{torch.cpu._is_amx_tile_supported()}; {repetitions} turns of {steps} steps')
    for dim, inner in ((192, 768), (256, 640)):
        config = NmtConfig('step', dim=dim, feed_forward=inner)
        learners = [attending(how, replace(config, bf16=bf16)) for how, bf16 in STEPS.values()]
        took = np.array([[seconds(t, source, target, steps) for t in learners] for _ in range(repetitions)])
        ratio = took / took[:, :1]
        for i, name in enumerate(STEPS):
            print(f'{dim} dimensions: {name:18} {np.median(took[:, i]):.3f} s, {np.median(ratio[:, i]):.2f} '
                  f'times the first ({ratio[:, i].min():.2f} to {ratio[:, i].max():.2f})', flush=True)


if __name__ == '__main__': main(*map(int, sys.argv[1:]))
