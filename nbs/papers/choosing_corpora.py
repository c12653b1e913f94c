"""The corpora that nbs/papers/choosing.py trains on, each with the measures that choose from it.

    python nbs/papers/choosing_corpora.py wmt
        # `choosing`: references beside the outputs of the systems of WMT 2021 to 2023: two minutes
    python nbs/papers/choosing_corpora.py czech
        # `czech-back`: 110,000 Czech sentences back-translated by the model that ships, lists of four: six minutes of
        # a core; `czech-first`: the best of each list; `czech-mined` and `czech-apart`: a division of the sources; the
        # language model and the classifier of `backtranslation.7`, trained on `czech-apart`, and their measures
    python nbs/papers/choosing_corpora.py models
        # `marian-de-en-tiny`, `marian-fr-en-tiny`: 2,500 steps, half an hour of a core each
    python nbs/papers/choosing_corpora.py others
        # `german-first`, `french-first`: the best of four translations of 40,000 sentences each: two minutes each
    python nbs/papers/choosing_corpora.py sources
        # `choosing-sources`: captions, verses, simplifications and what else the resources have
    python nbs/papers/choosing_corpora.py encoders
        # `czech-9k`: a sample with paraphrase scores of three encoders: five minutes, most of them to train one

PARANMT_RESOURCES names the folder that holds `train/`. Every step goes on where it was stopped."""
import sys

from paranmt_lab.bitext.importing import import_bitext
from paranmt_lab.corpora.derive import sample_corpus
from paranmt_lab.corpora.layout import list_corpora
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.filters.scoring import score
from paranmt_lab.ground.settings import settings
from paranmt_lab.recipes.sources import make_people, make_wmt, need_corpus, rows_where, translation_lists
from paranmt_lab.training.config import train_config
from paranmt_lab.training.loop import train
from paranmt_lab.translate.config import NmtConfig
from paranmt_lab.translate.training import ship, train_nmt

WMT, FIRST, MINED = 'choosing', 'czech-first', 'czech-mined'
SOURCES, SAMPLE = 'choosing-sources', 'czech-9k'
GLOVE = 'train/vectors/glove-6b-100d-60k.txt.gz'
SCORER, PUBLISHED, CALIBRATION = 'paraphrase-scorer', 'st:all-MiniLM-L6-v2', 'calibration:parabank'
TRAINED = 'best-TRIGRAM'  # TRIGRAM on all pairs of WMT, the best encoder by STS 2017 of those that are trained here
OTHERS = {'de': 'german', 'fr': 'french'}  # languages whose translation models are trained here
OTHER = 40_000          # sources of each that are translated
OTHER_STEPS = 2_500     # of these models; the one that ships had 12,000 of twice the size
# Kept out of the training of these models, and domains of software, which they see a fifth as often
HELD_OUT = {'tatoeba-test-v2021': 1000, 'multi30k-val': -1, 'newstest2017': -1, 'newstest2014': -1}
SOFTWARE = ('libreoffice-help', 'libreoffice-l10n-{}', 'inkscape', 'gnome-user-docs', 'gramps', 'gimp-data',
            'evolution-common', 'gnucash-common', 'installation-guide', 'aptitude-common', 'freeciv-data')
SAMPLED = 9_000         # pairs that a large encoder scores



def best_of_lists(back, name, s): return rows_where(back, lambda rows: rows['rank'] == 1, name, s)


def model_of(language): return f'marian-{language}-en-tiny'


def make_models(s):
    "Translation models of the size of the one that ships, trained for a shorter time; their cards say how good."
    for language in OTHERS:
        pairs = import_bitext(s.resources / f'train/bitext/{language}-en.parquet', f'{language}-en', s).frame()
        pairs, name = pairs.astype({'corpus': str}), model_of(language)
        domains = set(pairs.corpus)
        held_out = {domain: number for domain, number in HELD_OUT.items() if domain in domains}
        software = [domain.format(language) for domain in SOFTWARE]
        weights = {'tatoeba-test-v2021': 2.} | {domain: .2 for domain in software if domain in domains}
        config = NmtConfig(name, f'{language}-en', source_lang=language, held_out=held_out, weights=weights,
                           steps=OTHER_STEPS, warmup=400, short_first=800, evaluate_every=500)
        run = train_nmt(config, pairs, s)
        if not run.finished: sys.exit('stopped; the same command goes on')
        if (s.models / name / 'README.md').exists(): continue
        print(ship(run, s.models / name, 'python nbs/papers/choosing_corpora.py models').to_string(index=False))


def make_others(s):
    "Our own back-translations from other languages: the best of each list."
    for language, name in OTHERS.items():
        back = translation_lists(language, name, f'ct2:{model_of(language)}', OTHER, s)
        print(name, f'{best_of_lists(back, f"{name}-first", s).rows:,} pairs')


def make_czech(s):
    "Our own back-translations, and their division."
    need_corpus(MINED, s)
    score(need_corpus(FIRST, s), ['p_strong', 'p_fluent'], [CALIBRATION], workers=1)


def make_encoders(s):
    "A sample of the best translations; paraphrase scores of our scorer, a published encoder and one trained here."
    sample = sample_corpus([Corpus.open(FIRST, s)], SAMPLE, SAMPLED, s=s)
    run = train(train_config(TRAINED, WMT, model='TRIGRAM', vocabulary=50_000, megabatch=20, epochs=2, probes=0), s)
    print('STS 2017 after each epoch', run.metrics().development.dropna().round(2).tolist())
    for model in (SCORER, PUBLISHED, TRAINED):
        print(score(sample, ['paraphrase_score'], [model], workers=1).to_string())


MAKERS = dict(wmt=lambda s: make_wmt(WMT, s), czech=make_czech, models=make_models, others=make_others,
              sources=lambda s: SOURCES in list_corpora(s) or make_people(SOURCES, s), encoders=make_encoders)

if __name__ == '__main__':
    if not sys.argv[1:] or set(sys.argv[1:]) - set(MAKERS): sys.exit(__doc__)
    for what in sys.argv[1:]: MAKERS[what](settings())
