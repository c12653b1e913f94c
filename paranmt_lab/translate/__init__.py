"Back-translation: engines, training of a model, and the driver."
