"""The experiments of nbs/papers/choosing.py: no training twice or under another's name, and whole seeds alone count."""
import json
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def choosing(monkeypatch, tmp_path):
    "The experiments, their figures in a file of the test's own."
    monkeypatch.syspath_prepend(str(ROOT / 'nbs/papers'))
    import choosing
    import choosing_tables  # noqa: F401
    monkeypatch.setattr(choosing, 'FILE', tmp_path / 'choosing.json')
    yield choosing
    for name in ('choosing', 'choosing_tables'): sys.modules.pop(name)


def test_every_training_has_a_name_of_its_own(choosing):
    names = Counter(name for group in choosing.GROUPS for name, *_ in choosing.trainings(group))
    assert [name for name, n in names.items() if n > 1] == []
    runs = Counter(config.run.name for group in choosing.GROUPS for *_, config in choosing.trainings(group))
    assert max(runs.values()) == 1
    for *_, choice, config in choosing.trainings('top TRIGRAM'):
        assert (choice.name, choice.seed) == (config.data.selection, config.run.seed)


def facts(choosing, group, seeds, left_out=()):
    "Made-up figures of trainings, which grow with the seed."
    return {name: dict(group=group, corpus=config.data.corpus, selection=choice.name, model=config.encoder.model,
                       seed=choice.seed, pairs=10, available=20, epochs=[50., 70. + choice.seed],
                       test=60. + choice.seed)
            for name, choice, config in choosing.trainings(group) if choice.seed in seeds and name not in left_out}


def test_a_seed_that_lacks_a_training_does_not_count(choosing):
    import choosing_tables as tables
    every = facts(choosing, 'bigram_overlap', (0, 1, 2))
    last = list(every)[-1]
    choosing.FILE.write_text(json.dumps(dict(groups={}, trainings={k: v for k, v in every.items() if k != last})))
    configs = tables.by_config()
    assert set(configs.seeds) == {2} and configs.test.tolist() == [60.5] * len(configs)
    assert configs.development.tolist() == [70.5] * len(configs)
    [row] = tables.filter_rows('backtranslation.12')  # nothing of the other measures, so no row of them
    assert (row['dataset'], row['value'], row['seeds']) == ('bigram overlap', .605, '0, 1')
    assert row['low'] < .605 < row['high'] and '[0, 0.6]' in row['protocol']


def test_the_mean_over_models_is_of_seeds_that_all_of_them_have(choosing):
    import choosing_tables as tables
    found = {}
    for model, seeds in (('WORD', (0, 1, 2)), ('TRIGRAM', (0, 1))):
        found |= facts(choosing, f'own tenths of trigram_overlap {model}', seeds)
    choosing.FILE.write_text(json.dumps(dict(groups={}, trainings=found)))
    tenths = tables.by_tenths(choosing.FIRST)
    assert tenths.tenth.tolist() == list(choosing.OWN_TENTHS)
    assert set(tenths.seeds) == {2} and set(tenths.models) == {'WORD, TRIGRAM'} and set(tenths['mean']) == {70.5}


def test_trainings_go_on_where_they_were_stopped(choosing, halves, monkeypatch):
    s, done = halves(pairs=200), []
    base = choosing.train_config('w', 'halves', model='WORD', dim=8, megabatch=1, epochs=1, probes=0)
    monkeypatch.setattr(choosing, 'GROUPS', {'few': [(choosing.some('some', n=100), base)]})
    train = choosing.measured

    def stopped(config, s):
        if done: raise KeyboardInterrupt
        done.append(config.run.name)
        return train(config, s)
    monkeypatch.setattr(choosing, 'measured', stopped)
    with pytest.raises(KeyboardInterrupt): choosing.run(['few'], s)
    first = choosing.kept()['trainings']
    assert len(first) == 1 and not list(s.runs.glob('[!.]*'))  # the encoder is deleted
    monkeypatch.setattr(choosing, 'measured', train)
    choosing.run(['few'], s)
    every = choosing.kept()['trainings']
    assert len(every) == 3 and first.items() <= every.items()
    table = pd.DataFrame(every).T
    assert set(table.pairs) == {100} and table.ids.nunique() == 3  # another seed draws other pairs


def test_figures_of_the_package_are_those_of_the_trainings(monkeypatch):
    from paranmt_lab.evaluation.tables import measured
    monkeypatch.syspath_prepend(str(ROOT / 'nbs/papers'))
    import choosing_tables as tables
    for key in tables.KEYS:
        ours = pd.DataFrame(tables.measured_rows(key), columns=['dataset', 'value'])
        there = measured(key)
        assert ours.dataset.tolist() == there.dataset.tolist()
        assert ours.value.to_numpy() == pytest.approx(there.value.to_numpy(), abs=1e-12)
