"""The program of one attempt: started, watched, steered, ended."""
