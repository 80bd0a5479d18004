"""A fresh machine: a minimal Debian with what the README lists, in which its commands are run as typed."""
