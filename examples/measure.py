import joblens

result = joblens.run(["python3", "primes.py", "--limit", "2000000"], memory="64m", timeout="1m")
print(result.status, result.returncode, result.usage.memory_peak_bytes)
commands = (["python3", "primes.py", "--limit", str(limit)] for limit in (10**5, 10**6, 10**7))
for result in joblens.map_commands(commands, jobs=2):
    print(result.stdout.strip(), result.duration_s)


@joblens.measured  # records every call
def simulate() -> int:
    return sum(number * number for number in range(1_000_000))


print(simulate())
