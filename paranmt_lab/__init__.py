"""ParaNMT Lab: paraphrases by back-translation, judged, learned from, and measured.

The names one starts with can be imported from here; each is loaded when it is first asked for.
"""
from importlib import import_module as _import_module

__version__ = "0.2.0"

_HOMES = {
    'Corpus': 'corpora.query', 'list_corpora': 'corpora.layout',
    'import_bitext': 'bitext.importing',
    'open_model': 'ground.models', 'translate_corpus': 'translate.driver',
    'score': 'filters.scoring',
    'Selection': 'selection.choice', 'select': 'selection.record',
    'TrainConfig': 'training.config', 'train_config': 'training.config', 'train': 'training.loop',
    'Run': 'jobs.run', 'list_runs': 'jobs.run',
    'SentenceEncoder': 'encoders.sentence_encoder', 'export_encoder': 'encoders.export',
    'evaluate': 'evaluation.tasks',
    'create_campaign': 'annotation.campaigns',
}
__all__ = sorted(_HOMES)


def __getattr__(
    name, # One of `__all__`
):        # What its module has by that name
    "Load a name from the module it lives in."
    if name not in _HOMES: raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    value = getattr(_import_module(f'{__name__}.{_HOMES[name]}'), name)
    globals()[name] = value
    return value


def __dir__(): return sorted({*globals(), *_HOMES})
