"""Translation engines: scores of nothing, forced decoding of split sources, bounds, and refusals that claim no name."""
import math
import os
from dataclasses import replace

import numpy as np
import pytest

from command import paranmt
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.engines.apertium import ApertiumEngine
from paranmt_lab.engines.ct2 import CTranslate2Engine
from paranmt_lab.engines.protocol import BEAM_MOST, Decoding, Hypothesis
from paranmt_lab.ground.models import find_model, open_model
from paranmt_lab.ground.settings import DataWarning, settings
from paranmt_lab.selection import Selection, folds, select, selected_ids
from paranmt_lab.training.data import choose_pairs
from paranmt_lab.translate.driver import translate_corpus

MODEL = 'ct2:marian-cs-en-tiny'
FIRST, SECOND = 'Kde je ten pes?', 'Zítra přijdu o něco později.'


@pytest.fixture
def lab(tmp_path):
    return replace(settings(), workspace=tmp_path, workers=1, device='cpu')


@pytest.fixture
def bitext(lab):
    "Two sentences and a source that is nothing but white space, as Czech."
    corpus = Corpus.create('talk', lab)
    corpus.write_pairs(0, dict(source=[FIRST, SECOND, '\u3000'], reference=['a', 'b', 'c'], source_lang=['cs'] * 3))
    return corpus


class Silent:
    "An engine with a beam search that answers with nothing, and has no score."
    identity, methods = {'engine': 'silent'}, ('beam',)
    def translate(self, sources, decoding=Decoding(), advance=None):
        return [[Hypothesis('', math.nan, 1, 'empty')] for _ in sources]


# --- scores -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('engine', [MODEL, 'hf:marian-cs-en-tiny', Silent()], ids=['ct2', 'hf', 'silent'])
def test_a_source_without_pieces_has_no_score(lab, bitext, engine):
    """0 would be the best score there is."""
    pairs = translate_corpus(bitext, 'pairs', engine, lab,
                             Decoding(2)).frame(['source', 'translation', 'log_probability', 'translation_score'])
    nothing = pairs[pairs.translation == '']
    assert len(nothing) == (3 if isinstance(engine, Silent) else 1)
    assert nothing[['log_probability', 'translation_score']].isna().all().all()
    assert pairs[pairs.translation != ''].translation_score.notna().all()
    cached = Corpus.open('pairs', lab).folder.glob('cache/translate/translations/*.parquet')
    import pyarrow.parquet as pq
    assert all(not math.isnan(x or 0) for f in cached
               for x in pq.read_table(f)['log_probability'].to_pylist()), 'null, not NaN'


def test_apertium_has_no_score_for_nothing(tmp_path, monkeypatch):
    program = tmp_path / 'apertium'
    program.write_text('#!/bin/sh\nif [ "$1" = -l ]; then echo low-UPP; else tr a-z A-Z; fi\n')
    program.chmod(0o755)
    monkeypatch.setenv('PATH', f"{tmp_path}:{os.environ['PATH']}")
    [[full], [empty]] = ApertiumEngine('low-UPP').translate(['dog', ''])
    assert full.text == 'DOG' and empty.text == '' and math.isnan(empty.score) and math.isnan(full.score)


def test_forced_decoding_scores_every_part_of_a_split_source():
    """The parts' log-probabilities add up, over the length of all; one part alone is the plain definition."""
    folder = find_model('marian-cs-en-tiny')
    whole, split = (CTranslate2Engine(folder, longest=n, compute_type='float32') for n in (256, 12))
    source = f'{FIRST} {SECOND}'
    assert [len(e.pieces.cut(source)[0]) for e in (whole, split)] == [1, 2]
    best = [hs[0] for hs in whole.translate([FIRST, SECOND])]
    parts = whole.force([FIRST, SECOND], [h.text for h in best])
    for part, h in zip(parts, best):
        assert (part.text, part.tokens) == (h.text, h.tokens)
        assert part.log_probability == pytest.approx(h.log_probability, abs=1e-3)
    [joined] = split.force([source], [' '.join(h.text for h in best)])
    assert joined.log_probability == pytest.approx(sum(p.log_probability for p in parts), abs=1e-3)
    assert joined.tokens == sum(p.tokens for p in parts)
    assert joined.score == pytest.approx(joined.log_probability / joined.tokens)
    [own] = split.translate([source])[0]
    assert joined.log_probability == pytest.approx(own.log_probability, abs=1e-3) and joined.tokens == own.tokens
    [worse] = split.force([source], [f'{best[0].text} Snow fell on the hills.'])
    assert worse.log_probability < joined.log_probability - 5, 'the second part counts'
    [short] = split.force([source], ['Dog'])
    assert math.isfinite(short.log_probability), 'fewer words than parts'
    assert math.isnan(whole.force([' '], ['It rains.'])[0].score), 'no pieces, no score'


def test_a_beam_that_would_take_all_memory_is_refused():
    assert Decoding(BEAM_MOST).beam_size == BEAM_MOST >= 50
    for wrong, why in (
            (dict(beam_size=100_000), f'beam_size = 100000, expected 1 to {BEAM_MOST}'),
            (dict(beam_size=4, n_best=5), 'n_best = 5, expected 1 to beam_size = 4'),
            (dict(method='sample', n_best=BEAM_MOST + 1), f'n_best = {BEAM_MOST + 1}, expected 1 to {BEAM_MOST}'),
            (dict(method='alternatives', n_best=10**6), 'n_best = 1000000, expected')):
        with pytest.raises(ValueError, match=why): Decoding(**wrong)


# --- a refused command claims nothing ---------------------------------------------------------------------------------

REFUSED = {
    'mistyped model': dict(engine='ct2:marian-cs-en-tniy'), 'no engine': dict(engine='marian'),
    'no diverse beam': dict(engine=MODEL, decoding=Decoding(4, 4, 'diverse', 2)),
    'no sample': dict(engine=Silent(), decoding=Decoding(n_best=2, method='sample')),
    'no size': dict(engine=MODEL, part_size=0), 'no cluster': dict(engine=MODEL, cluster='slurm')}


@pytest.mark.parametrize('name', REFUSED)
def test_a_refused_translation_claims_no_name(lab, bitext, name):
    options = dict(decoding=Decoding(2)) | REFUSED[name]
    with pytest.raises((ValueError, FileNotFoundError)): translate_corpus(bitext, 'pairs', s=lab, **options)
    assert not (lab.corpora / 'pairs').exists()
    assert translate_corpus(bitext, 'pairs', MODEL, lab, Decoding(2)).rows == 3, 'the corrected command works'


def test_pairs_without_a_source_claim_no_name(lab):
    ready = Corpus.create('ready', lab)
    ready.write_pairs(0, dict(reference=['a', 'b'], translation=['c', 'd']))
    with pytest.raises(ValueError, match='2 rows of corpus .ready. have no source'):
        translate_corpus(ready, 'pairs', MODEL, lab, Decoding(2))
    (ready.folder / 'pairs/part-00000.parquet').write_bytes(b'cut')
    with pytest.raises(ValueError, match='no shard of corpus .ready. can be read'):
        translate_corpus(ready, 'pairs', MODEL, lab, Decoding(2))
    assert not (lab.corpora / 'pairs').exists()


def run_command(lab, *words):
    "Return code and all output of a command."
    done = paranmt(words, PARANMT_WORKSPACE=str(lab.workspace))
    return done.returncode, ' '.join((done.stdout + done.stderr).split())


def test_refused_on_the_command_line(lab, bitext):
    """A shortlist of another engine, and of a domain that is not there; a search that the engine lacks."""
    shortlist = ['model', 'train', 'shortlist', 'talk', 'listed', '--set']
    for words, why in (([*shortlist, 'without=nosuch'], "no domain 'nosuch'"), ([*shortlist, 'each=0'], 'each = 0'),
                       (['translate', 'talk', 'pairs', '--method', 'diverse'], "no decoding by 'diverse'"),
                       (['translate', 'talk', 'pairs', '--beam-size', '100000'], 'beam_size = 100000')):
        code, said = run_command(lab, *words)
        assert code in (1, 2) and why in said and 'Traceback' not in said, said
    assert not (lab.models / 'listed').exists() and not (lab.corpora / 'pairs').exists()


def test_a_shortlist_is_replaced_by_force_only(lab, bitext):
    "Made again by mistake, it would lose the candidates that a corpus was translated with."
    command = 'model', 'train', 'shortlist', 'talk', 'listed', '--set'
    assert run_command(lab, *command, 'each=50')[0] == 0
    card = lab.models / 'listed/README.md'
    before = card.read_text(encoding='utf-8')
    code, text = run_command(lab, *command, 'each=60')
    assert code == 1 and 'listed exists already' in text and '--force' in text, text
    assert card.read_text(encoding='utf-8') == before
    assert run_command(lab, *command, 'each=60', '--force')[0] == 0
    assert '60 at most' in card.read_text(encoding='utf-8').replace('\n', ' ')


# --- the corpus' language and the engine's ----------------------------------------------------------------------------

def german(lab, code='de'):
    corpus = Corpus.create('german', lab)
    corpus.write_pairs(0, dict(source=['Wo ist der Hund?', 'Es regnet.'], reference=['a', 'b'], source_lang=[code] * 2))
    return corpus


@pytest.mark.parametrize('engine', [MODEL, 'hf:marian-cs-en-tiny'])
def test_german_does_not_go_through_the_czech_model(lab, engine):
    with pytest.raises(ValueError, match=r"'german' has sources in de \(2 rows\), and marian-cs-en-tiny translates cs; "
                       r"name an engine .*opus-mt-de-en, .*--source-lang cs"):
        translate_corpus(german(lab), 'pairs', engine, lab, Decoding(1))
    assert not (lab.corpora / 'pairs').exists()


def test_spellings_of_a_language_are_one_and_unknown_is_said_once(lab, capsys):
    assert translate_corpus(german(lab, 'cs-CZ'), 'pairs', MODEL, lab, Decoding(1)).rows == 2
    assert 'no language is said' not in capsys.readouterr().err
    nobody = Silent()
    for _ in range(2): translate_corpus(Corpus.open('german', lab), 'silent', nobody, lab, Decoding(1))
    assert capsys.readouterr().err.count('engine silent: no language is said') == 1


def test_a_converted_model_keeps_its_language(lab, tmp_path):
    from test_hub import as_marian

    from paranmt_lab.engines.ct2 import convert
    from paranmt_lab.engines.marian import marian_of_ct2
    from paranmt_lab.ground.settings import write_json
    folder = as_marian(marian_of_ct2(find_model('marian-cs-en-tiny')), tmp_path / 'hub')
    for said, known in (('cs', 'cs'), ('roa', ''), ('', '')):
        write_json(folder / 'tokenizer_config.json', dict(source_lang=said))
        assert CTranslate2Engine(convert(folder, tmp_path / 'ct2')).source_lang == known


def test_a_training_takes_its_language_from_the_bitext():
    import pandas as pd

    from paranmt_lab.translate.config import NmtConfig
    from paranmt_lab.translate.data import with_language
    pairs = pd.DataFrame(dict(source_lang=['de', 'de-AT', None]))
    assert with_language(NmtConfig('x', source_lang='deu'), pairs).source_lang == 'deu'
    assert with_language(NmtConfig('x'), pairs[:1]).source_lang == 'de'
    for config, frame, why in ((NmtConfig('x', source_lang='cs'), pairs, 'sources are in de'),
                               (NmtConfig('x'), pairs.drop(columns='source_lang'), '--set source_lang=de'),
                               (NmtConfig('x'), pd.DataFrame(dict(source_lang=['de', 'cs'])), 'sources are in de, cs')):
        with pytest.raises(ValueError, match=why): with_language(config, frame)
    with pytest.raises(ValueError, match="'german' is no language code"): NmtConfig('x', source_lang='german')


def test_a_training_does_not_replace_the_model_of_another(lab, bitext):
    (lab.models / 'mine').mkdir(parents=True)
    code, said = run_command(lab, 'model', 'train', 'translation', 'talk', 'mine')
    assert code == 1 and 'mine holds another model; take another name' in said and not (lab.runs / 'mine').exists()


ODD = {'Ahoj.': '', '😀😀': 'unknown source', '你好': 'unknown source', '!' * 30: 'repetition',
       'ano ' * 200: 'repetition'}


@pytest.mark.parametrize('engine', ['ct2:marian-cs-en-tiny',
                                    pytest.param('hf:marian-cs-en-tiny', marks=pytest.mark.soak)])
def test_what_is_invented_or_goes_round_is_flagged(lab, engine):
    found = open_model(engine, lab).translate(list(ODD), Decoding(beam_size=2))
    assert all(flag in h.flags for flag, [h] in zip(ODD.values(), found)) and found[0][0].flags == ''


def test_flagged_pairs_are_left_out_of_tenths_and_trainings(lab):
    corpus = Corpus.create('flags', lab)
    texts = [f'It rains {k}.' for k in range(40)]
    flags = ['unknown source', 'foreign script, repetition', 'split source', *[None] * 37]
    corpus.write_pairs(0, dict(reference=texts, translation=texts, flags=flags))
    corpus.write_measure('m', 0, np.arange(40, 0, -1))
    assert folds(corpus, 'm', 2).pairs.tolist() == [19, 19]
    chosen = {'plain': {}, 'half': dict(fold_measure='m', folds=(2,), fold_count=2), 'all': dict(keep_flags=True)}
    sizes = {name: select(corpus, Selection(name, **choice))['pairs'] for name, choice in chosen.items()}
    assert sizes == dict(plain=38, half=19, all=40)
    with pytest.warns(DataWarning, match='2 pairs left out.*keep_flags=yes'): assert len(choose_pairs(corpus)) == 38
    assert len(choose_pairs(corpus, selected_ids(corpus, 'all'))) == 40
    with pytest.warns(DataWarning, match='2 pairs left out'): assert len(selected_ids(corpus)) == 38
