"""Language models and language identification: against the definition, against KenLM's own estimator, on damaged files,
and from the command line."""
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from command import paranmt
from paranmt_lab.corpora.derive import deduplicate, merge, sample_corpus
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.corpora.state import state_of
from paranmt_lab.filters.kneser_ney import BEGIN, FALLBACK, estimate, read_arpa, write_arpa
from paranmt_lab.filters.language_model import LanguageModel, cut, lm_seen, perplexity, save_lm, text_hashes
from paranmt_lab.filters.lm_training import train_lm
from paranmt_lab.filters.probability import english_probability, language_probability
from paranmt_lab.filters.scoring import score
from paranmt_lab.ground.models import identity_of, models_at_hand, open_model
from paranmt_lab.ground.settings import settings
from paranmt_lab.selection import selected_ids
from references import references

pytest.importorskip('kenlm')
SLOW = references('filters.kneser_ney')
BITEXT = settings().resources / 'train/bitext'


def sample():
    "References of the repository's sample, as tokens."
    path = settings().sample / 'bitext.cs-en.tsv'
    return cut(pd.read_csv(path, sep='\t', quoting=3).reference.tolist())


@pytest.fixture
def lab(tmp_path): return replace(settings(), workspace=tmp_path, root=tmp_path)


@pytest.fixture
def talk(lab):
    "A corpus of the sample's sentences, three pairs a segment, in two shards."
    references = [' '.join(t) for t in sample()]
    corpus, half = Corpus.create('talk', lab), len(references) // 2
    for shard, some in enumerate((references[:half], references[half:])):
        corpus.write_pairs(shard, dict(reference=np.repeat(some, 3), translation=np.repeat(some[::-1], 3)))
    return corpus


# ---- the estimator

SENTENCES = st.lists(st.lists(st.sampled_from('a b c d'.split()), max_size=6), min_size=1, max_size=12)


@given(SENTENCES, st.integers(2, 4))
@hypothesis_settings(max_examples=60, deadline=None)
def test_each_probability_is_the_formulas(sentences, order):
    model, chance = estimate(sentences, order), SLOW.probability_slowly(sentences, order)
    for grams, probability in zip(model.grams, model.probability):
        for words, p in zip(grams.words, probability):
            gram = tuple(model.vocabulary[i] for i in words)
            if gram != (BEGIN,): assert p == pytest.approx(chance(gram), rel=1e-9)


# From KenLM 0.3.0: `lmplz -o 3` on the tokens of the sample's references; log10 p, log10 of the backoff weight
LMPLZ = {'withstand a': (-0.78369313, -0.028182326), 'me , please': (-1.8773841, 0.),
         'open it': (-1.6940444, -0.028182326), ', marcel .': (-0.5912013, 0.),
         '<s> brand': (-3.7628827, -0.028182326), 'more than a': (-1.006979, 0.),
         'the girl': (-2.954241, -0.028182326), 'orsagova': (-3.9159625, -0.07218053), 'side': (-3.323714, -0.1632033),
         'knight . </s>': (-0.056760337, 0.), '<unk>': (-4.0433187, 0.), '</s>': (-3.537804, 0.),
         '<s> the': (-0.78973126, -0.050899178), '. </s>': (-0.06084479, 0.), "<s> i 'm": (-0.6810822, 0.)}


def test_the_models_are_those_of_kenlms_own_estimator(tmp_path):
    write_arpa(estimate(sample(), 3), tmp_path / 'lm.arpa')
    table = read_arpa(tmp_path / 'lm.arpa')
    assert len(table) == 28_406
    for gram, expected in LMPLZ.items(): assert table[tuple(gram.split())] == pytest.approx(expected, abs=2e-6), gram


def test_what_follows_any_context_sums_to_one():
    model = estimate(sample(), 3)
    for n in (1, 2):
        grams, seen, shorter = model.grams[n], model.probability[n], model.probability[n - 1]
        places = len(model.backoff[n - 1])
        left = 1 - np.bincount(grams.prefix, shorter[grams.suffix], places)
        if n == 1: whole = np.bincount(grams.prefix, seen, places) + model.backoff[0] * left
        else: whole = np.bincount(grams.prefix, seen, places) + model.backoff[1] * left
        assert np.allclose(whole[np.bincount(grams.prefix, minlength=places) > 0], 1)


def test_too_little_to_estimate_discounts_from_takes_those_of_kenlm():
    assert estimate([['a']], 2).discounts == [FALLBACK, FALLBACK]
    with pytest.raises(ValueError, match='no sentence'): estimate([], 3)
    for order in (1, 7):
        with pytest.raises(ValueError, match='expected 2 to 6'): estimate([['a']], order)


# ---- asked through KenLM

TEXTS = st.lists(st.text(st.characters(exclude_categories=('Cs',)), max_size=30), max_size=8)


@given(TEXTS)
@hypothesis_settings(max_examples=60, deadline=None)
def test_any_text_has_the_probability_of_the_slow_reference(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp('lm')
    known = cut([*texts[::2], 'The tram is late.', 'a \0 b', 'no\u00a0break \u2028 \x85 \x1c end'])
    save_lm(estimate(known, 3), folder, text_hashes(known), {})
    lm, table = LanguageModel(folder), read_arpa(folder / 'lm.arpa')
    for tokens in cut([*texts, 'The tram', '\0', '<s> </s> <unk>', '']):
        assert lm.log_probability(tokens) == pytest.approx(SLOW.log_probability_slowly(table, tokens, 3), abs=1e-4)
    values = perplexity([*texts, None, ''], lm)
    assert np.isnan(values).tolist() == [not t for t in cut([*texts, None, ''])]
    assert (values[~np.isnan(values)] >= 1).all()


@pytest.mark.skipif(not BITEXT.exists(), reason=f'no bitext below {BITEXT}')
def test_real_sentences_have_the_probability_of_the_slow_reference(tmp_path):
    texts = pq.read_table(BITEXT / 'fr-en.parquet').to_pandas().sample(6_000, random_state=0)
    train, test = cut(texts.reference[:4_000]), cut([*texts.reference[4_000:], *texts.source[4_000:]])
    save_lm(estimate(train), tmp_path, text_hashes(train), {})
    lm, table = LanguageModel(tmp_path), read_arpa(tmp_path / 'lm.arpa')
    slowly = [SLOW.log_probability_slowly(table, tokens, 3) for tokens in test]
    assert np.allclose([lm.log_probability(t) for t in test], slowly, rtol=1e-5)
    english, french = np.nanmedian(perplexity(test[:2_000], lm)), np.nanmedian(perplexity(test[2_000:], lm))
    assert english < french / 3


def test_a_damaged_model_says_what_to_do(lab, talk):
    train_lm(talk, 'small', lab, sentences=100)
    folder = lab.models / 'small'
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    damages = {'lm.arpa': whole['lm.arpa'][:5_000], 'lm.json': b'{"order": "three"}', 'seen.npy': b'\x93NUMPY'}
    for name, damaged in damages.items():
        (folder / name).write_bytes(damaged)
        with pytest.raises(ValueError, match=f'{name}.*train the model again'): open_model('lm:small', lab)
        (folder / name).unlink()
        with pytest.raises(FileNotFoundError, match=f'there is no {name}; make one with'): open_model('lm:small', lab)
        (folder / name).write_bytes(whole[name])
    open_model('lm:small', lab)
    np.save(folder / 'seen.npy', np.array([print], object), allow_pickle=True)
    with pytest.raises(ValueError, match='train the model again'): open_model('lm:small', lab)


# ---- training, and keeping apart

def test_a_draw_is_by_segment_and_by_seed(lab, talk):
    facts = [train_lm(talk, f'small{seed}', lab, sentences=200, seed=seed) for seed in (0, 1)]
    models = [open_model(f'lm:small{seed}', lab) for seed in (0, 1)]
    assert identity_of('lm:small0', lab) == models[0].identity != models[1].identity
    assert list(models_at_hand(lab, 'LanguageModel')) == ['lm:small0', 'lm:small1']
    frame = talk.frame(['segment', 'reference'])
    for lm in models:
        seen = pd.Series(lm_seen(frame.reference.tolist(), lm))
        assert set(seen.groupby(frame.segment).nunique()) == {1}  # a segment is seen or not
        assert frame.segment[seen == 1].nunique() >= 200
    assert facts[0]['measured']['perplexity'] > 20


def test_one_domain_and_another(lab, talk):
    train_lm(talk, 'first', lab, sentences=100, where='pair_id < 1000000000')
    lm = open_model('lm:first', lab)
    assert lm.facts['data']['of'] == talk.frame(['segment'], where='pair_id < 1000000000').segment.nunique()
    with pytest.raises(ValueError, match='columns are pair_id'): train_lm(talk, 'x', lab, 10, where='domain = 1')


def test_a_note_where_the_pairs_were_seen_and_none_elsewhere(lab, talk):
    train_lm(talk, 'small', lab, sentences=100)
    lm = open_model('lm:small', lab)
    found = score(talk, ['reference_perplexity', 'lm_seen'], {'lm:small': lm}, show=False)
    [note] = found.attrs['notes']
    seen = int(talk.frame(['lm_seen@small']).sum().iloc[0])
    assert f'references of {seen:,} of the {talk.rows:,} pairs' in note and seen >= 300
    assert talk.manifest('score-reference_perplexity@small')['notes'] == [note]
    again = score(talk, ['reference_perplexity'], {'lm:small': lm}, show=False)
    assert again.attrs['notes'] == [note]  # also when there is nothing to do
    values = talk.frame(['reference_perplexity@small', 'lm_seen@small'])
    medians = values.groupby('lm_seen@small')['reference_perplexity@small'].median()
    assert medians[1] < medians[0] / 2
    other = Corpus.create('other', lab)
    other.write_pairs(0, dict(reference=['Nobody said this before, ever.'], translation=['Or this.']))
    assert not score(other, ['reference_perplexity'], {'lm:small': lm}, show=False).attrs['notes']


def test_a_replaced_model_leaves_no_value(lab, talk, monkeypatch):
    monkeypatch.setenv('PARANMT_WORKSPACE', str(lab.workspace))
    column = 'reference_perplexity@small'
    train_lm(talk, 'small', lab, sentences=100)
    score(talk, ['reference_perplexity'], ['lm:small'], show=False)
    old = talk.frame([column])
    assert not paranmt(['select', talk.name, 'plain', '--range', f'{column}=0:1000']).returncode
    train = ['model', 'train', 'language-model', talk.name, 'small', '--set', 'sentences=150', '--force']
    assert not paranmt(train).returncode
    assert column not in talk.measures() and 'lm_seen@small' in talk.measures()
    refused = paranmt(['select', talk.name, 'now', '--range', f'{column}=0:1000'])
    assert refused.returncode and 'lm:small was replaced; compute it again' in ' '.join(refused.stderr.split())
    assert 'lm:small was replaced' in ' '.join(state_of(talk).notes) and state_of(talk).status == 'finished'
    with pytest.raises(ValueError, match='was replaced'): sample_corpus([talk], 'part', 10, s=lab)
    score(talk, ['reference_perplexity'], ['lm:small'], show=False)
    assert column in talk.measures() and not talk.frame([column]).equals(old)


def test_a_column_that_does_not_name_its_model_is_not_completed(lab, talk, monkeypatch):
    monkeypatch.setenv('PARANMT_WORKSPACE', str(lab.workspace))
    train_lm(talk, 'small', lab, sentences=100)
    for shard, n in talk.sizes.items(): talk.write_measure('reference_perplexity@small', shard, np.ones(n))
    with pytest.raises(ValueError, match='by an unknown|with an unknown model.*paranmt workspace remove measure:'):
        score(talk, ['reference_perplexity'], ['lm:small'], show=False)
    assert not paranmt(['workspace', 'remove', f'measure:{talk.name}/reference_perplexity@small', '--yes']).returncode
    score(talk, ['reference_perplexity'], ['lm:small'], show=False)
    assert talk.summary('reference_perplexity@small')['low'] > 1


def test_derived_corpora_say_who_computed_a_measure(lab, talk, monkeypatch):
    monkeypatch.setenv('PARANMT_WORKSPACE', str(lab.workspace))
    column = 'reference_perplexity@small'
    train_lm(talk, 'small', lab, sentences=100)
    score(talk, ['reference_perplexity'], ['lm:small'], show=False)
    part = sample_corpus([talk], 'part', 50, s=lab)
    assert part.manifest(f'score-{column}')['lm'] == identity_of('lm:small', lab)
    assert deduplicate([part], 'once', s=lab).manifest(f'score-{column}')['lm'] == identity_of('lm:small', lab)
    train_lm(talk, 'small', lab, sentences=150, force=True)
    score(talk, ['reference_perplexity'], ['lm:small'], show=False)
    with pytest.raises(ValueError, match='was replaced'): merge([talk, part], 'both', s=lab)
    for path in (part.folder / 'measures' / column).iterdir(): os.utime(path)  # as a copy that came from elsewhere
    with pytest.raises(ValueError, match='by different makers'): merge([talk, part], 'both', s=lab)
    part.drop_measure(column)
    score(part, ['reference_perplexity'], ['lm:small'], show=False)
    assert merge([talk, part], 'both', s=lab).manifest(f'score-{column}')['lm'] == identity_of('lm:small', lab)


TRAIN = """
import sys
from pathlib import Path
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.filters.lm_training import train_lm
print('begin', flush=True)
train_lm(Corpus(Path(sys.argv[1])), 'killed', sentences=700)
"""


def test_a_killed_training_leaves_no_model_and_can_be_given_again(lab, talk):
    environment = os.environ | dict(PARANMT_WORKSPACE=str(lab.workspace))
    folder, killed = lab.models / 'killed', 0
    for wait in (0, .02, .1, .2):
        process = subprocess.Popen([sys.executable, '-c', TRAIN, talk.folder], env=environment, stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(wait)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.communicate()
        if folder.exists(): LanguageModel(folder)  # whole, or not there
    assert killed
    facts = train_lm(talk, 'killed', lab, sentences=700)
    assert LanguageModel(folder).facts == json.loads(json.dumps(facts))
    assert sorted(p.name for p in lab.models.iterdir()) == ['killed']


# ---- languages

def test_identified_languages(lab):
    identifier = open_model('language:py3langid')
    texts = ['The children are waiting for the tram.', 'Děti čekají na tramvaj, která nejede.', None, '', 'OK', '12 %']
    english = english_probability(texts, identifier)
    assert english[0] > .9 and english[1] < .01 and np.isnan(english[2:]).all() and english.dtype == np.float32
    same = [language_probability([texts[1]], [code], identifier)[0] for code in ('cs', 'ces', 'cs-CZ', 'cs_CZ')]
    assert len(set(same)) == 1 and same[0] > .5
    for code in ('hsb', 'xx', '', None, 'roa'):
        assert np.isnan(language_probability([texts[1]], [code], identifier)).all()


def test_a_language_is_scored_like_any_measure(lab):
    corpus = Corpus.create('mixed', lab)
    corpus.write_pairs(0, dict(source=['Kde je ten malý pes, prosím?', 'Where is the little dog?', 'Kde je?', None],
                               source_lang=['cs', 'cs', None, 'cs'], reference=['Where is the little dog?'] * 4,
                               translation=['Where is the small dog?', 'Kde je ten malý pes, prosím?', '', None]))
    names = ['source_language', 'reference_language', 'translation_language']
    with pytest.raises(ValueError, match="takes a model of the kind 'language'"): score(corpus, names, show=False)
    found = score(corpus, names, ['language:py3langid'], show=False).set_index('measure').no_value
    assert found.tolist() == [2, 0, 2] and list(found.index) == [f'{name}@py3langid' for name in names]
    values = corpus.frame(list(found.index))
    assert values['source_language@py3langid'][0] > .4 > values['source_language@py3langid'][1]
    assert values['translation_language@py3langid'][0] > .9 > .1 > values['translation_language@py3langid'][1]
    assert 'version' in corpus.manifest('score-reference_language@py3langid')['language']


# ---- from the command line

def test_from_the_command_line(lab, talk):
    run = partial(paranmt, PARANMT_WORKSPACE=str(lab.workspace), COLUMNS='200', PARANMT_WORKERS='2')
    done = run('model train language-model talk small --set sentences=100')
    assert done.returncode == 0 and 'the selection without-small keeps' in done.stdout, done.stderr
    held = talk.frame(['pair_id'], where='"lm_seen@small" = 1').pair_id
    assert not set(held) & set(selected_ids(talk, 'without-small'))
    assert len(held) + len(selected_ids(talk, 'without-small')) == talk.rows
    done = run('score talk translation_perplexity --model lm:small')  # two processes, each opens it
    assert done.returncode == 0 and 'perplexities are too low' in done.stdout, done.stderr
    texts = talk.frame(['translation', 'translation_perplexity@small'])
    expected = perplexity(texts.translation.tolist(), open_model('lm:small', lab))
    np.testing.assert_array_equal(texts['translation_perplexity@small'].to_numpy(np.float32), expected)


@pytest.mark.soak
def test_by_force_and_anew_from_the_command_line(lab, talk):
    run = partial(paranmt, PARANMT_WORKSPACE=str(lab.workspace), COLUMNS='200', PARANMT_WORKERS='2')
    train_lm(talk, 'small', lab, sentences=100)
    again = run('model train language-model talk small --set sentences=100 --set seed=4')
    assert again.returncode == 1 and 'exists already' in again.stderr.splitlines()[-1]
    forced = run('model train language-model talk small --set sentences=100 --set seed=4 --force')
    assert forced.returncode == 0, forced.stderr
    anew = run('score talk translation_perplexity --model lm:small')
    assert anew.returncode == 0, anew.stderr
    texts = talk.frame(['translation', 'translation_perplexity@small'])
    expected = perplexity(texts.translation.tolist(), open_model('lm:small', lab))
    np.testing.assert_array_equal(texts['translation_perplexity@small'].to_numpy(np.float32), expected)


def test_a_bitext_without_translations_holds_out_references_for_later(lab):
    corpus = Corpus.create('bitext', lab)
    corpus.write_pairs(0, dict(source=[f'Věta {i}' for i in range(40)], reference=[f'Sentence {i}' for i in range(40)]))
    done = paranmt('model train language-model bitext small --set sentences=10',
                   PARANMT_WORKSPACE=str(lab.workspace), COLUMNS='200')
    assert done.returncode == 0 and 'None has a translation yet' in done.stdout, done.stderr
    pairs = Corpus.create('pairs', lab)
    pairs.write_pairs(0, corpus.frame(['segment', 'reference']).assign(translation='Some sentence.'))
    found = score(pairs, ['lm_seen'], {'lm:small': open_model('lm:small', lab)}, show=False)
    assert pairs.frame(['lm_seen@small']).sum().iloc[0] == 10 and found.attrs['notes']
