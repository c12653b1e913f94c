"""Score ranges and tenths, and training sets chosen by them."""
from paranmt_lab.selection.choice import Selection, paper_selection, steps  # noqa: F401
from paranmt_lab.selection.conditions import Range, check_condition  # noqa: F401
from paranmt_lab.selection.ranges import (  # noqa: F401
    PAPER_3,
    PAPER_RANGES,
    fold_bounds,
    fold_condition,
    folds,
    range_table,
)
from paranmt_lab.selection.record import (  # noqa: F401
    list_selections,
    read_selection,
    select,
    selected_batches,
    selected_ids,
    training_pairs,
)
