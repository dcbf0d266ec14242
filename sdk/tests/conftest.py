import hypothesis

from sdk.tests.length import examples

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile(
    "ours", deadline=None, max_examples=examples(10), suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("ours")
