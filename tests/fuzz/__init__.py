"""Fuzzing: histories, specs and reports by plain random numbers, as many as time allows, each repeatable by its seed.

``python -m fuzz`` runs it on all cores (`make fuzz`); ``test_fuzz.py`` is the part for every change.
"""
