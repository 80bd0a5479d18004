"""Admission: which runs get nodes now, and why each of the others is pending."""
