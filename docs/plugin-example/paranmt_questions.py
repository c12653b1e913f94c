"""A measure for ParaNMT Lab: question marks that only one side of a pair has."""
import numpy as np

from paranmt_lab.filters.table import Measure, tokens


def question_marks(references, translations):
    "Difference of the numbers of question marks, float32; NaN where a side is empty."
    count = lambda side: np.array([words.count('?') if words else np.nan for words in side], np.float32)
    return np.abs(count(references) - count(translations))


MEASURE = Measure('question_marks', question_marks, (tokens('reference'), tokens('translation')),
                  (0, np.inf), 'not in the papers', 'question marks on one side alone')
