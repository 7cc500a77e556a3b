"""How figures and pages look: those of experiments, of comparisons and of live agents."""
