"""A chart that colours by names never uses a colour twice, however many names there are."""
import numpy as np
import pandas as pd
import pytest

from paranmt_lab.charts.annotation import agreement_intervals, drift_lines
from paranmt_lab.charts.base import OTHERS
from paranmt_lab.charts.evaluation import difference_dots
from paranmt_lab.charts.maps import embedding_map
from paranmt_lab.charts.training import negatives_by_epoch, training_curve

MANY = [f'name {i:02}' for i in range(31)]


def of_map(names):
    rows = np.repeat(names, range(2, len(names) + 2))
    places = pd.DataFrame({'x': range(len(rows)), 'y': 0, 'corpus': rows, 'sentence': 'text'})
    return embedding_map(places, 'corpus')


def of_training(names):
    return training_curve(pd.DataFrame([dict(run=n, step=s, loss=1 / s) for n in names for s in (1, 2, 3)]))


def of_results(names):
    gap = dict(value=.5, difference=.1, low=0, high=.2)
    return difference_dots(pd.DataFrame([gap | dict(column=y, row=n) for n in names for y in ('2012', '2014')]), 'WORD')


def of_drift(names):
    days = pd.date_range('2024-03-04', periods=3)
    return drift_lines(pd.DataFrame([dict(annotator=n, time=t, position=25, offset=.1, error=.1, n=50 + i, agreement=.8)
                                     for i, n in enumerate(names) for t in days]))


def of_agreement(names):
    rows = [dict(stratum=s, coefficient=n, value=.5, low=.4, high=.6, shown='.5', items=9) for n in names for s in 'ab']
    return agreement_intervals(pd.DataFrame(rows))


def of_negatives(names):
    return negatives_by_epoch(pd.DataFrame([dict(epoch=e, megabatch=m + 1, cosine_partner=.8, cosine_negative=.4)
                                            for m in range(len(names)) for e in (1, 2)]))


def colours_of(part):
    "Every colour encoding that names its colours, anywhere in a specification."
    if isinstance(part, list): return [found for one in part for found in colours_of(one)]
    if not isinstance(part, dict): return []
    own = part.get('encoding', {}).get('color', {})
    here = [own] if own.get('type') == 'nominal' else []
    return here + [found for one in part.values() for found in colours_of(one)]


@pytest.mark.parametrize('count', [1, 3, 6, 7, 31])
@pytest.mark.parametrize('draw', [of_map, of_training, of_results, of_drift, of_agreement, of_negatives])
def test_no_colour_stands_for_two_names(draw, count):
    spec = draw(MANY[:count]).to_dict()
    rows = pd.concat([pd.DataFrame(r) for r in spec['datasets'].values()])
    found = colours_of({k: v for k, v in spec.items() if k != 'datasets'})
    assert found
    for colour in found:
        names, shades = colour['scale']['domain'], colour['scale']['range']
        assert len(names) == len(shades) == len(set(shades)), 'a colour a name'
        assert set(rows[colour['field']].dropna()) <= set(names), 'no name without a colour'


def test_the_largest_have_colours_and_the_rest_is_grey_and_counted():
    spec = of_map(MANY).to_dict()
    colour = spec['encoding']['color']
    assert colour['scale']['domain'] == [*MANY[:-6:-1], 'others (26 domains)']
    assert colour['scale']['range'][-1] == OTHERS
    rows = pd.DataFrame(next(iter(spec['datasets'].values())))
    assert (rows[colour['field']] == 'others (26 domains)').sum() == sum(range(2, 28))
    assert set(rows.corpus) == set(MANY), 'the tooltip gives each its own name'


def test_lines_of_others_are_not_joined():
    for draw in (of_training, of_drift, of_negatives):
        layers = [layer for layer in draw(MANY).to_dict()['layer'] if 'color' in layer.get('encoding', {})]
        assert layers and all('detail' in layer['encoding'] for layer in layers)


def test_the_busiest_raters_have_the_colours():
    names = of_drift(MANY).to_dict()['layer'][1]['encoding']['color']['scale']['domain']
    assert set(names[:-1]) == set(MANY[-5:])


def test_a_map_says_how_far_it_is():
    from paranmt_lab.maps.projection import project
    heard = []
    project(np.random.default_rng(0).normal(size=(300, 8)), progress=lambda done, total: heard.append((done, total)))
    done, total = zip(*heard)
    assert set(total) == {total[0]} and list(done) == sorted(done) and done[-1] == total[0] > 100


def test_a_map_without_a_listener_is_silent(capfd):
    from paranmt_lab.maps.projection import project
    project(np.random.default_rng(0).normal(size=(60, 8)))
    assert capfd.readouterr() == ('', '')
