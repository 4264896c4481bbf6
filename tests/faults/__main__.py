import sys, time, cProfile
from tests.faults.plan import plan_of
from tests.faults.world import World
a,b=int(sys.argv[1]),int(sys.argv[2])
t=time.time()
for seed in range(a,b):
    o=World(plan_of(seed)).run()
    if o.violation or b-a==1:
        print(seed,o.violation)
        if b-a==1: print("\n".join(o.history)); print(o.happened,o.checks,o.updates,o.versions)
print(time.time()-t)
