"""Programs around the recipes of the documentation: what each leaves to its reader."""
