"""The seeded-fault study: what our verdict and the rules of peers detect, and what they cry wolf about."""
