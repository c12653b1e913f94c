"Selections written for OpusFilter keep the same pairs, by its filters or by what its documentation says of them."
import re
import subprocess
from dataclasses import replace
from shutil import which

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from command import paranmt
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.settings import settings
from paranmt_lab.selection import Selection, read_selection, select, selected_ids
from paranmt_lab.selection.opusfilter import export_conditions, opusfilter_config
from paranmt_lab.tokens.text import tokenize

yaml = pytest.importorskip('yaml')

WORDS = ['rain', 'Rain', "don't", 'DON’T', "it's", 'late', ',', '“', '…', 'řeč', '3.5', '🐎', 'e\u0301tude', "n't", 'İ']


def passes(one, pair):
    "Whether a pair passes a filter, by OpusFilter's documentation."
    [(name, p)] = one.items()
    lengths = [len(text.split()) for text in pair]
    if name == 'LengthFilter':
        ends = [p[f'{end}_length'] for end in ('min', 'max')]
        least, most = (end if isinstance(end, list) else [end] * 2 for end in ends)
        return all(low <= length <= high for low, length, high in zip(least, lengths, most))
    if name == 'LengthRatioFilter':
        if 0 in lengths: return not any(lengths)
        return max(lengths) / min(lengths) < p['threshold']
    assert (name, p) == ('SimilarityFilter', dict(unit='char', lowercase=True, threshold=1))
    return pair[0].lower() != pair[1].lower()


def filtered(config, pairs):
    "The pairs that a configuration keeps."
    for step in yaml.safe_load(config)['steps']:
        p = step['parameters']
        if step['type'] == 'filter': pairs = [pair for pair in pairs if all(passes(one, pair) for one in p['filters'])]
        elif step['type'] == 'preprocess':
            [[pattern, new, count, flags]] = p['preprocessors'][0]['RegExpSub']['patterns']
            how = re.I if flags else 0
            pairs = [tuple(re.sub(pattern, new, text, count=count, flags=how) for text in pair) for pair in pairs]
        else:
            first = {}
            for pair in pairs: first.setdefault(tuple(pair[k] for k in p['compare']), pair)
            pairs = list(first.values())
    return pairs


def scored(folder, pairs):
    "A corpus of pairs with the lengths of their sides."
    corpus = Corpus.create('talk', replace(settings(), workspace=folder))
    reference, translation = map(list, zip(*pairs))
    corpus.write_pairs(0, dict(reference=reference, translation=translation))
    lengths = [np.array([len(tokenize(text)) or np.nan for text in side], np.float32)
               for side in (reference, translation)]
    for side, values in zip(('reference', 'translation'), lengths): corpus.write_measure(f'{side}_length', 0, values)
    corpus.write_measure('length_ratio', 0, (np.maximum(*lengths) / np.minimum(*lengths)).astype(np.float32))
    return corpus


CHOICES = [
    dict(max_length=3), dict(min_length=2), dict(min_ratio=.3), dict(min_ratio=1), dict(exclude_equal=True),
    dict(ranges=(('reference_length', 1, 4),)), dict(ranges=(('translation_length', 2, None, True),)),
    dict(ranges=(('reference_length', None, None),)), dict(ranges=(('length_ratio', None, 5 / 3),)),
    dict(deduplicate=['translation']), dict(deduplicate=['pair', 'reference'], min_ratio=.5, max_length=5),
    dict(ranges=(('length_ratio', 1, 1.5, True), ('translation_length', 0, 5)), min_length=1, max_length=5,
         min_ratio=.7, exclude_equal=True, deduplicate=['reference', 'translation'])]

SENTENCE = st.lists(st.sampled_from(WORDS), max_size=6).map(' '.join)


@given(st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=30))
@hypothesis_settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_configuration_keeps_the_pairs_of_the_selection(tmp_path_factory, pairs):
    corpus = scored(tmp_path_factory.mktemp('any'), pairs)
    for k, fields in enumerate(CHOICES):
        record = select(corpus, Selection(f's{k}', **fields))
        assert filtered(opusfilter_config(record), pairs) == [pairs[i] for i in selected_ids(corpus, f's{k}')], fields


@pytest.mark.skipif(not which('opusfilter'), reason='needs OpusFilter')
@pytest.mark.parametrize('fields', CHOICES)
def test_opusfilter_keeps_the_pairs_of_the_selection(tmp_path, fields):
    random = np.random.default_rng(0)
    texts = [' '.join(random.choice(WORDS, random.integers(0, 7))) for _ in range(600)]
    pairs = list(zip(texts[:300], texts[300:])) + [(text, text.upper()) for text in texts[:50]] * 2
    corpus = scored(tmp_path / 'data', pairs)
    select(corpus, Selection('good', **fields))
    export_conditions(corpus, 'good', tmp_path / 'good.yaml')
    for k, side in enumerate(('reference', 'translation')):
        (tmp_path / f'{side}.txt').write_text(''.join(pair[k] + '\n' for pair in pairs), encoding='utf-8')
    subprocess.run(['opusfilter', 'good.yaml'], cwd=tmp_path, check=True)
    sides = [(tmp_path / f'good.{side}.txt').read_text(encoding='utf-8').split('\n')[:-1]
             for side in ('reference', 'translation')]
    assert list(zip(*sides)) == [pairs[i] for i in selected_ids(corpus, 'good')]


@pytest.mark.parametrize('fields, lacking', [
    (dict(ranges=(('length_ratio', 1, 2),)), 'length_ratio in (1, 2]'),
    (dict(ranges=(('length_ratio', None, None),)), 'length_ratio has a value'),
    (dict(ranges=(('reference_length/translation_length', .5, 2),)), 'reference_length/translation_length in (0.5, 2]'),
    (dict(folds=(2,), fold_count=2, fold_measure='reference_length'), 'folds 2 of 2 by reference_length'),
    (dict(deduplicate=['pair'], exact=False), 'each pair once, case and punctuation aside'),
    (dict(one_per_source='first'), 'one per source: first'),
    (dict(per_domain=3), 'at most so many of a domain: any other 3, seed 0'),
    (dict(n=2), 'sample of 2, seed 0'),
    (dict(where="reference <> '\n- \x85a: \u2028b # \x1b[2J'"), "reference <> ' - a: b # \\u001b[2J'")])
def test_a_condition_without_a_filter_is_a_comment(tmp_path, fields, lacking):
    corpus = scored(tmp_path, [('It rains.', 'Rain.'), ('No.', 'Not at all.'), ('A', 'B')])
    record = select(corpus, Selection('good', max_length=30, **fields))
    config = opusfilter_config(record)
    assert f'#   {lacking}' in config.split('\n')
    without = opusfilter_config(select(corpus, Selection('plain', max_length=30)))
    assert yaml.safe_load(config.replace('good', 'plain')) == yaml.safe_load(without)


def test_infinite_ends_are_no_limits(tmp_path):
    corpus = scored(tmp_path, [('It rains.', 'Rain.'), ('No.', '')])
    for k, measure in enumerate(('reference_length', 'translation_length', 'length_ratio')):
        record = select(corpus, Selection(f's{k}', ranges=((measure, -np.inf, np.inf),)))
        assert len(filtered(opusfilter_config(record), [('It rains.', 'Rain.'), ('No.', '')])) == record['pairs']


def test_a_record_that_lost_steps_is_refused(tmp_path):
    corpus = scored(tmp_path, [('It rains.', 'Rain.')])
    select(corpus, Selection('good', max_length=30))
    record = read_selection(corpus, 'good')
    with pytest.raises(ValueError, match='restore its record, or select again with --force'):
        opusfilter_config(record | dict(steps=record['steps'][:1]))


@pytest.mark.parametrize('line, code, why', [
    ('good.yaml', 2, 'gets the conditions of a selection'),
    ('good.yaml --selection good --columns reference', 2, 'conditions have neither'),
    ('good.yaml --selection other', 1, 'it has: good'),
    ('there.yaml --selection good', 1, 'exists already')])
def test_the_command_says_what_is_wrong(tmp_path, monkeypatch, line, code, why):
    monkeypatch.chdir(tmp_path)
    select(scored(tmp_path / 'data', [('It rains.', 'Rain.')]), Selection('good', max_length=30))
    (tmp_path / 'there.yaml').touch()
    done = paranmt(f'corpus export talk {line}', PARANMT_WORKSPACE=str(tmp_path / 'data'), COLUMNS='200')
    assert done.returncode == code and why in ' '.join(done.stderr.replace('│', ' ').split())
    assert not (tmp_path / 'good.yaml').exists()
