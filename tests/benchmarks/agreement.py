"""Coefficients of 100,000 items with 1,000,000 ratings.

    python tests/benchmarks/agreement.py [items] [people] [each]
        # 100,000 items, 20 people, 10 ratings an item unless told

Prints a table of medians of seven runs in milliseconds; the first row, point values from counts of patterns, must
stay under 200."""
import sys
import time

import numpy as np
import pandas as pd

from paranmt_lab.annotation.agreement import (
    COEFFICIENTS,
    KAPPAS,
    agreement,
    agreement_table,
    pair_agreement,
    pair_tables,
    patterns,
)


def made_up(items, people, each):
    "Ratings in five strata: people see the truth in 70 % of cases."
    rng, shares = np.random.default_rng(0), [.2, .3, .5]
    truth = rng.choice(3, items, p=shares)
    who = rng.permuted(np.tile(np.arange(people), (items, 1)), axis=1)[:, :each]
    said = 1 + np.where(rng.random((items, each)) < .7, truth[:, None], rng.choice(3, (items, each), p=shares))
    item = np.repeat(np.arange(items), each)
    return pd.DataFrame({'item': item, 'annotator': who.ravel(),
                         'stratum': item % 5, 'strength': said.ravel(), 'fluency': 4 - said.ravel()})


def median(call, times=7):
    spent = []
    for _ in range(times):
        start = time.perf_counter(); call()
        spent.append(time.perf_counter() - start)
    return 1e3 * float(np.median(spent))


if __name__ == '__main__':
    items, people, each = (int(x) for x in (sys.argv[1:] + ['100000', '20', '10'][len(sys.argv) - 1:]))
    ratings = made_up(items, people, each)
    table = patterns(ratings)
    strength, tables = table[table.scale == 'strength'], pair_tables(ratings, 'strength')
    pair = next(iter(tables.values()))
    rows = {f'all {len(COEFFICIENTS)} coefficients of a scale, '
            f'from {len(strength)} counts of patterns': lambda: agreement(strength, resamples=0),
            'the same with intervals of 1,000 resamples': lambda: agreement(strength),
            'both scales, five strata and all, three coefficients, '
            'without intervals': lambda: agreement_table(table, resamples=0),
            'the same with intervals': lambda: agreement_table(table),
            'four coefficients of one pair of people, '
            'with intervals': lambda: pair_agreement(pair, ['percent', *KAPPAS]),
            f'tables of {len(tables)} pairs of people, from the ratings': lambda: pair_tables(ratings, 'strength'),
            'counts of patterns, from the ratings': lambda: patterns(ratings)}
    times = pd.Series({name: median(call, 7 if i < 5 else 3) for i, (name, call) in enumerate(rows.items())},
                      name=f'{len(ratings):,} ratings, ms')
    print(times.round(1).to_string())
    if (first := times.iloc[0]) > 200: sys.exit(f'{first:.0f} ms, 200 allowed')
