"""What programs call to start others: ``ssh``, ``pdsh``, ``srun`` and the like, understood and made into steps."""
