"Tenths and selections against plain pandas, and scoring that is killed and goes on."
import signal, subprocess, sys, textwrap, time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from paranmt_lab.corpus import SHARD, Corpus
from paranmt_lab.registry import MEASURES, score
from paranmt_lab.selection import PAPER_RANGES, Selection, fold_bounds, fold_condition, folds, list_selections, paper_selection, range_table, select, selected_ids, training_pairs
from paranmt_lab.settings import settings

few = hypothesis_settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
# Many ties, values at the edges of ranges, and no value at all.
values = st.sampled_from([0., 0., 0.2, 0.4, 0.8, 1., None]) | st.floats(-0.5, 1, width=32)
shard_lists = st.lists(st.lists(values, min_size=5, max_size=40), min_size=1, max_size=3)


@pytest.fixture
def corpora(tmp_path):
    lab = replace(settings(), workspace=tmp_path)
    names = (f'c{i}' for i in range(10_000))
    return lambda: Corpus.create(next(names), lab)


def filled(corpus, shards):
    "Pairs of three to a segment; every fourth has equal sides."
    for k, some in enumerate(shards):
        said = [f'Sentence {k} {i}.' for i in range(len(some))]
        corpus.write_pairs(k, dict(source=[f'Věta {k} {i // 3}.' for i in range(len(some))], reference=said,
                                   translation=[t.upper() if i % 4 == 0 else t + ' Really.' for i, t in enumerate(said)]))
        corpus.write_measure('m', k, some)
        corpus.write_measure('trigram_overlap', k, np.arange(len(some)) % 5 / 5)
        for side in ('reference_length', 'translation_length'): corpus.write_measure(side, k, np.arange(len(some)) % 7 + (side[0] == 't'))
    return corpus


@few
@given(shards=shard_lists, k=st.integers(2, 6))
def test_folds_are_equal_disjoint_and_in_order(corpora, shards, k):
    corpus = filled(corpora(), shards)
    ranked = corpus.frame(['m', 'segment', 'pair_id']).dropna(subset='m').sort_values(['m', 'segment', 'pair_id']).pair_id.tolist()
    if len(ranked) < k:
        with pytest.raises(ValueError, match='too few'): fold_bounds(corpus, 'm', k)
        return
    bounds = fold_bounds(corpus, 'm', k)
    parts = [corpus.frame(['pair_id'], where=fold_condition('m', bounds, f)).pair_id.tolist() for f in range(1, k + 1)]
    cuts = [len(ranked) * i // k for i in range(k + 1)]
    assert [sorted(p) for p in parts] == [sorted(ranked[a:b]) for a, b in zip(cuts, cuts[1:])]
    assert folds(corpus, 'm', k).pairs.tolist() == [len(p) for p in parts]


@few
@given(shards=shard_lists, ranges=st.just(PAPER_RANGES) | st.just(((0, 0.5), (0.2, 0.9))))
def test_ranges_and_rest_are_the_corpus(corpora, shards, ranges):
    corpus = filled(corpora(), shards)
    table, frame = range_table(corpus, 'm', ranges), corpus.frame(['m', 'trigram_overlap'])
    m = frame.m.to_numpy(np.float32)
    masks = [(m > np.float32(a)) & (m <= np.float32(b)) for a, b in ranges]
    masks.append(~np.any(masks, axis=0))
    assert table.pairs.tolist() == [int(x.sum()) for x in masks]
    for mean, sd, x in zip(table.overlap, table.sd, masks):
        some = frame.trigram_overlap[x].astype(float)
        np.testing.assert_allclose([mean, sd], [some.mean(), some.std(ddof=0)], atol=1e-6)
    if ranges == PAPER_RANGES: assert table.pairs.sum() == corpus.rows


@few
@given(shards=shard_lists, low=st.sampled_from([None, 0., 0.2]), high=st.sampled_from([None, 0.4, 1.]), most=st.integers(0, 6), equal=st.booleans(), n=st.integers(0, 12), seed=st.integers(0, 9))
def test_a_selection_is_what_pandas_would_choose(corpora, shards, low, high, most, equal, n, seed):
    corpus = filled(corpora(), shards)
    frame = corpus.frame()
    m, keep = frame.m.to_numpy(np.float32), np.ones(len(frame), bool)
    kept = [len(frame)]
    for step in [(m > (np.float32(low) if low is not None else -9)) & (m <= (np.float32(high) if high is not None else 9)),
                 *([(frame.reference_length <= most) & (frame.translation_length <= most)] if most else []),
                 *([frame.reference.str.lower() != frame.translation.str.lower()] if equal else [])]:
        keep &= np.asarray(step); kept.append(int(keep.sum()))
    record = select(corpus, Selection('s', ranges=(('m', low, high),), max_length=most, exclude_equal=equal, n=n, seed=seed, reason='property'))
    assert [s['pairs'] for s in record['steps']][:len(kept)] == kept and record['reason'] == 'property'
    ids = selected_ids(Corpus(corpus.folder), 's')
    assert set(ids) <= set(frame.pair_id[keep]) and len(ids) == (min(n, kept[-1]) if n else kept[-1]) == record['pairs']
    assert sorted(ids) == ids.tolist()
    if len(ids): assert training_pairs(corpus, 's').merge(frame, on=['pair_id', 'segment', 'reference', 'translation']).pair_id.tolist() == ids.tolist()
    assert sorted(corpus.query(record['sql']).pair_id) == frame.pair_id[keep].tolist()


def test_pairs_without_a_translation_are_not_learned_from(corpora):
    corpus = corpora()
    corpus.write_pairs(0, dict(reference=['One.', 'Two.', 'Three.'], translation=['Uno.', None, 'Tre.']))
    assert training_pairs(corpus).reference.tolist() == ['One.', 'Three.']
    assert [s['pairs'] for s in select(corpus, Selection('all'))['steps']] == [3, 2]


def test_errors_say_what_to_do(corpora):
    corpus = corpora()
    corpus.write_pairs(0, dict(reference=['One.', 'Two.'], translation=['Uno.', 'Due.']))
    for choice, why in ((Selection('a', max_length=30), 'score the corpus'), (Selection('a', ranges=(('m', 0, 1),)), "no column 'm'"),
                        (Selection('a', fold_measure='m', folds=(1,)), "no column 'm'"), (Selection('../a'), 'cannot name'),
                        (paper_selection('m" OR 1=1 --'), 'no column')):
        with pytest.raises(ValueError, match=why): select(corpus, choice)
    assert list_selections(corpus) == []
    with pytest.raises(FileNotFoundError, match='has no selection'): selected_ids(corpus, 'a')


# ---- scoring

OVERLAPS = [m.name for m in MEASURES.values() if m.function and not m.needs_encoder]
SCORE = textwrap.dedent("""
    import sys
    from pathlib import Path
    from paranmt_lab.corpus import Corpus
    from paranmt_lab.registry import score
    if __name__ == '__main__': score(Corpus(Path(sys.argv[1])), sys.argv[3:], workers=int(sys.argv[2]))
""")


def talk(corpus, shards=12, n=400):
    rng, words = np.random.default_rng(0), np.array('the a dog cat sees hears some bird here there now and then'.split())
    say = lambda: [' '.join(rng.choice(words, rng.integers(3, 40))) + '.' for _ in range(n)]
    for k in range(shards): corpus.write_pairs(k, dict(reference=say(), translation=say()))
    return corpus


def files(corpus): return {p.relative_to(corpus.folder): p.read_bytes() for p in corpus.folder.rglob('measures/*/part-*.parquet')}


def test_scoring_killed_and_gone_on_with(corpora, tmp_path):
    script = tmp_path / 'score.py'
    script.write_text(SCORE)
    corpus, twin = talk(corpora()), talk(corpora())
    score(twin, OVERLAPS, show=False)
    killed = 0
    for more in (1, 20):  # kill when so many files more are there
        have, process = len(files(corpus)), subprocess.Popen([sys.executable, script, corpus.folder, '1', *OVERLAPS])
        while process.poll() is None and len(files(corpus)) < have + more: time.sleep(0.002)
        if process.poll() is None: process.send_signal(signal.SIGKILL); killed += 1
        process.wait()
        assert Corpus(corpus.folder).measures() == [] or len(files(corpus)) == len(files(twin))
    assert killed
    score(corpus, OVERLAPS, show=False)
    assert files(corpus) == files(twin) and corpus.check().empty
    assert corpus.manifest('score-trigram_overlap')['status'] == 'finished'


def test_workers_write_the_same_files(corpora, tmp_path):
    script = tmp_path / 'score.py'
    script.write_text(SCORE)
    corpus, twin = talk(corpora(), 4, 50), talk(corpora(), 4, 50)
    score(twin, ['trigram_overlap'], show=False)
    subprocess.run([sys.executable, script, corpus.folder, '2', 'trigram_overlap'], check=True)
    assert files(corpus) == files(twin) and len(files(twin)) == 4


def test_scoring_stops_on_request(corpora):
    corpus = talk(corpora(), 3, 20)

    class Stopper:
        def similarity(self, first, second):
            (corpus.folder / 'cache' / 'stop').touch()
            return np.zeros(len(first), np.float32)

    assert score(corpus, ['paraphrase_score'], Stopper(), model='stopper', show=False).empty
    assert corpus.missing('paraphrase_score@stopper') == [1, 2] and corpus.manifest('score-paraphrase_score@stopper')['status'] == 'running'
    with pytest.raises(ValueError, match='cannot be computed with other'): score(corpus, ['paraphrase_score@stopper'], Stopper(), model='other')
