"""Long work of every kind: who made it, how far it is, its folder, its processes, and how a learner is trained."""
