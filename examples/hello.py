"""Run a command in a fresh sandbox, see its output, exit code and how long it took.

    python examples/hello.py

Needs a Talon server (scripts/quickstart starts one) and the SDK (pip install talon-sandbox, or -e sdk/python).
"""

from talon_sandbox import CommandError, Sandbox


def main() -> None:
    with Sandbox.create(image="base", resources={"cpu": 1, "memory": "512MiB"}, ttl="10m", env={"WHO": "world"}) as sb:
        result = sb.run("echo hello $WHO; echo careful >&2; exit 3")
        print(f"stdout={result.stdout!r} stderr={result.stderr!r} exit_code={result.exit_code}")

        sb.run(["python3", "-c", "print(sum(range(10)))"], check=True, on_stdout=lambda text: print(text, end=""))

        slow = sb.run("echo begun; sleep 60", timeout=0.5)
        print(f"timed_out={slow.timed_out} kept={slow.stdout!r}")

        try:
            sb.run("cat /no/such/file", check=True)
        except CommandError as error:
            print(f"failed as told: {error.result.stderr.strip()}")


if __name__ == "__main__":
    main()
