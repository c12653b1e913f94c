"""Score ranges and tenths, and training sets chosen by them."""
from paranmt_lab.selection.choice import (  # noqa: F401
    PAPER_3,
    PAPER_RANGES,
    Selection,
    fold_bounds,
    fold_condition,
    folds,
    paper_selection,
    range_table,
    steps,
)
from paranmt_lab.selection.conditions import Range, check_condition  # noqa: F401
from paranmt_lab.selection.record import (  # noqa: F401
    list_selections,
    read_selection,
    select,
    selected_batches,
    selected_ids,
    training_pairs,
)
