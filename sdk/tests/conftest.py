from sdk.tests.length import load_profile

load_profile()
