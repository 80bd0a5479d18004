"""The verbs: flags, help, and what each calls. What is called is imported when the verb runs (see ``main``)."""
