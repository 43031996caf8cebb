# The inner loop; everything here is a script in scripts/.
.PHONY: setup check test gen agent lock quickstart
setup: ; scripts/setup --dev
check: setup ; scripts/check
test: ; scripts/test
gen: setup ; scripts/gen
agent: ; scripts/build-agent
lock: ; scripts/lock
quickstart: ; scripts/quickstart
