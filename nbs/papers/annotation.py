"""A language model as a rater and as an engine, for nbs/papers/annotation.ipynb.

    python nbs/papers/annotation.py rate NAME [keep]
        # chat:NAME marks 500 pairs of ParaBank's evaluation and the walk-through, beside the people
    python nbs/papers/annotation.py rewrite NAME [keep]
        # 500 English sentences of the sample by back-translation and by chat:NAME, greedy and sampled; a WORD of each

PARANMT_CHAT_URL names the server, PARANMT_RESOURCES the folder with `human/parabank_eval`, and PARANMT_WORKSPACE
a workspace that keeps the answers, so that a second call asks nothing. `keep` writes nbs/papers/annotation.json.
No sentence of the evaluation is written anywhere else."""
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from paranmt_lab.annotation.campaigns import SCALES, Campaign, campaign_items
from paranmt_lab.annotation.exports import import_answers, read_answers, read_parabank
from paranmt_lab.annotation.machine import bias_by_label, compared, machine_ratings, rate_by_machine
from paranmt_lab.annotation.store import EventLog
from paranmt_lab.annotation.views import ratings
from paranmt_lab.bitext.importing import import_bitext
from paranmt_lab.corpora.layout import list_corpora
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.encoders.sentence_encoder import SentenceEncoder
from paranmt_lab.engines.protocol import Decoding
from paranmt_lab.evaluation.tasks import development_score
from paranmt_lab.filters.scoring import score, score_texts
from paranmt_lab.ground.models import open_model
from paranmt_lab.ground.settings import settings
from paranmt_lab.training.config import train_config
from paranmt_lab.training.loop import train
from paranmt_lab.translate.driver import translate_corpus

sys.path.append(str(Path(__file__).resolve().parents[2] / 'tests/benchmarks'))
from kept import ROOT, keep

PATH = ROOT / 'nbs/papers/annotation.json'
PAIRS, SENTENCES, SEED = 500, 500, 0
SEEDS = 0, 1, 2  # of trainings on the paraphrases
RIVALS = 'paraphrase_score', 'unigram_overlap', 'trigram_overlap'  # measures beside the machine's strength
TABLE = ('identity', 'unigram_overlap', 'trigram_overlap', 'length_ratio', 'paraphrase_score@paraphrase-scorer',
         'p_strong@people', 'p_fluent@people')


def parabank(s):
    "The answers about 500 pairs that at least two people rated."
    rows = read_parabank(s.resources / 'human/parabank_eval')
    rows = rows[rows.repeat_of.isna()].drop_duplicates(['item', 'annotator'])
    several = rows[rows['item'].map(rows.groupby('item').annotator.nunique()) >= 2]
    chosen = several.drop_duplicates('item').sort_values('item').sample(PAIRS, random_state=SEED)['item']
    return rows[rows['item'].isin(chosen)]


def figures(log, campaign, model, name):
    "The machine beside the people: a table for each scale, and the bias by label."
    rate_by_machine(log, campaign, model, name)
    people, machines = ratings(log, campaign), machine_ratings(log, campaign)
    tables = [compared(log, campaign, scale).assign(scale=scale) for scale in SCALES]
    biases = [bias_by_label(people, machines, scale).assign(scale=scale) for scale in SCALES]
    counts = machines[list(SCALES)].astype('Int64').value_counts(dropna=False).rename('pairs').reset_index()
    plain = lambda frame: frame.round(4).astype(object).where(frame.notna(), None).to_dict('records')
    return dict(table=plain(pd.concat(tables)), bias=plain(pd.concat(biases)), marks=plain(counts))


def correlations(log, campaign, s):
    "Spearman's correlation of each measure with the mean strength of the people, with an interval by pair."
    items, people = campaign_items(log, campaign).set_index('item'), ratings(log, campaign)
    mean = people.groupby('item').strength.mean().astype(float).dropna()
    items = items.loc[mean.index]
    values = score_texts(items.reference, items.translation, RIVALS, dict(encoder=open_model('paraphrase-scorer', s)))
    values.index = items.index
    values['strength'] = machine_ratings(log, campaign).set_index('item').strength.astype(float).reindex(items.index)
    rows, rng = [], np.random.default_rng(SEED)
    for measure in values:
        both = pd.DataFrame(dict(a=values[measure], b=mean)).dropna().to_numpy()
        draws = [spearmanr(*both[rng.integers(0, len(both), len(both))].T).statistic for _ in range(1000)]
        low, high = np.nanpercentile(draws, [2.5, 97.5])
        rows.append(dict(measure=measure, pairs=len(both), rho=round(spearmanr(*both.T).statistic, 4),
                         low=round(low, 4), high=round(high, 4)))
    return rows


def rate(name, s):
    "Marks of a language model beside those of people."
    model = open_model(f'chat:{name}', s, 'ChatModel')
    log = EventLog(f"sqlite:///{Path(tempfile.mkdtemp()) / 'annotations.sqlite'}")
    import_answers(log, Campaign('parabank', overlap=1), parabank(s))
    import_answers(log, Campaign('walkthrough', overlap=1), read_answers(ROOT / 'paranmt_lab/assets/walkthrough.csv'))
    results = {campaign: figures(log, campaign, model, f'chat:{name}') for campaign in ('parabank', 'walkthrough')}
    results['parabank']['correlations'] = correlations(log, 'parabank', s)
    for campaign, found in results.items():
        print(campaign, pd.DataFrame(found['table']).to_string(index=False), sep='\n')
    print(pd.DataFrame(results['parabank']['correlations']).to_string(index=False))
    keep(f'machine {name}', PATH, identity=model.identity, account=model.account, **results)


def sentences(s):
    "A corpus of 500 sentence pairs of the sample."
    if 'five' in list_corpora(s): return Corpus.open('five', s)
    if 'sample' not in list_corpora(s):
        import_bitext(s.sample / 'bitext.cs-en.tsv', 'sample', s, source_lang='cs')
    rows = Corpus.open('sample', s).frame(['source_lang', 'source', 'reference']).drop_duplicates('reference')
    rows = rows.drop_duplicates('source').sample(SENTENCES, random_state=SEED)
    corpus = Corpus.create('five', s)
    corpus.write_pairs(0, rows)
    return corpus


def taught(corpus, s):
    "STS 2017 of WORD trained on the usable pairs of a corpus from random vectors: a value for each seed."
    values = []
    for seed in SEEDS:
        config = train_config(f'{corpus}-{seed}', corpus=corpus, model='WORD', min_count=1, batch_size=25, megabatch=4,
                              epochs=20, probes=0, seed=seed)
        encoder = SentenceEncoder.load(train(config, s, show=False).folder / 'encoder')
        values.append(round(float(development_score(encoder, s)[0]), 2))
    return values


def rewrite(name, s):
    "Paraphrases of the same sentences in several ways."
    corpus, rows = sentences(s), []
    ways = {'back-translation': ('ct2:marian-cs-en-tiny', 'source', Decoding(12)),
            f'chat:{name}, greedy': (f'chat:{name}', 'reference', Decoding()),
            f'chat:{name}, sampled': (f'chat:{name}', 'reference', Decoding(method='sample'))}
    for place, (way, (engine, side, decoding)) in enumerate(ways.items()):
        pairs = translate_corpus(corpus, f'five-{place}', engine, s, decoding, side=side, show=False)
        score(pairs, TABLE, ['paraphrase-scorer'], show=False)
        frame = pairs.frame(['reference', 'translation', 'flags', *TABLE])
        usable = frame[frame.translation.fillna('') != '']
        means = {measure: round(float(usable[measure].mean()), 4) for measure in TABLE}
        errors = {f'{measure}_se': round(float(usable[measure].sem()), 4) for measure in TABLE}
        changed = usable[usable.identity == 0]
        for measure in TABLE[-3:]: means[f'{measure}_changed'] = round(float(changed[measure].mean()), 4)
        flagged = frame['flags'].dropna().value_counts().to_dict()
        rows.append(dict(way=way, sentences=len(frame), answers=len(usable), changed=len(changed),
                         flags=flagged, sts17=taught(pairs.name, s)) | means | errors)
        print(pd.Series(rows[-1]).to_string(), flush=True)
    keep(f'rewriting {name}', PATH, rows=rows)


def main(words):
    todo = [word for word in words if word != 'keep']
    if len(todo) != 2 or todo[0] not in ('rate', 'rewrite'): sys.exit(__doc__)
    dict(rate=rate, rewrite=rewrite)[todo[0]](todo[1], settings())


if __name__ == '__main__': main(sys.argv[1:])
