"""Make several sandboxes in one call and work in all of them at once.

python examples/async_many.py
"""

import asyncio

from talon_sandbox import AsyncClient, AsyncSandbox

COUNT = 8


async def square(sandbox: AsyncSandbox, number: int) -> int:
    async with sandbox:
        result = await sandbox.run(["python3", "-c", f"print({number} ** 2)"], check=True)
        return int(result.stdout)


async def main() -> None:
    async with AsyncClient() as client:
        sandboxes = await client.create_many(COUNT, image="base", ttl="10m", labels={"example": "async_many"})
        squares = await asyncio.gather(*(square(sandbox, number) for number, sandbox in enumerate(sandboxes)))
        left = await client.list(labels={"example": "async_many"}, state="running")
    print(squares, f"{len(left)} left")


if __name__ == "__main__":
    asyncio.run(main())
