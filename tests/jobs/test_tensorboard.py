"""TensorBoard's event files have the figures of metrics.jsonl, and a resumed training has no step twice."""
import sys

import pytest
import torch

from paranmt_lab.jobs.fit import Figures, Learner, Plan, Position, fit
from paranmt_lab.jobs.run import Run

PLAN = Plan(total=10, steps=10, log_every=1, evaluate_every=5, checkpoint_every=4)


class Counter(Learner):
    "Counts its steps; fails once where it is told to."
    def __init__(self, fails=0): self.at, self.fails, self.sum = Position(), fails, torch.zeros(1)
    def batches(self): return range(5)

    def step(self, batch):
        if self.fails and self.at.step == self.fails: raise InterruptedError
        self.sum = self.sum + 1
        yield Figures(dict(loss=1 / self.sum.item()))

    def evaluate(self): return dict(development=self.sum.item())
    def save(self, folder): folder.mkdir(exist_ok=True)
    def state_dict(self): return dict(sum=self.sum)
    def load_state_dict(self, state): self.sum = state['sum']
    def moment(self): return dict(epoch=self.at.epoch, text='no figure')


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv('PARANMT_TENSORBOARD', 'yes')
    return Run.create(tmp_path, 'counted', {})


def test_a_resumed_training_has_each_step_once(run):
    pytest.importorskip('tensorboard', reason='TensorBoard is not installed: pip install "paranmt-lab[tensorboard]"')
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    with pytest.raises(InterruptedError): fit(Counter(fails=6), run, PLAN, show=False)
    fit(Counter(), run, PLAN, show=False)
    events = EventAccumulator(str(run.folder / 'tensorboard')).Reload()
    metrics = run.metrics()
    names = set(events.Tags()['scalars'])
    assert names == {'loss', 'epoch', 'development', 'steps_per_second'}
    assert metrics.step.tolist() == list(range(1, 11))
    for name in ('loss', 'epoch', 'development'):
        rows = metrics.dropna(subset=name)
        points = events.Scalars(name)
        assert [p.step for p in points] == rows.step.tolist()
        assert [p.value for p in points] == pytest.approx(rows[name].tolist())


def test_without_the_package_the_error_says_what_to_install(run, monkeypatch):
    for name in ('tensorboard', 'torch.utils.tensorboard'): monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=r'paranmt-lab\[tensorboard\]'): fit(Counter(), run, PLAN, show=False)
    monkeypatch.setenv('PARANMT_TENSORBOARD', 'no')
    fit(Counter(), run, PLAN, show=False)
    assert run.finished and not (run.folder / 'tensorboard').exists()
