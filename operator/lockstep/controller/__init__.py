"""Everything that talks: watches, reconciles, answers workers, serves metrics and the web page."""
