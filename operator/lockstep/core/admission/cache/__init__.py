"""What an admission cycle keeps for the next one, and can work out anew."""
