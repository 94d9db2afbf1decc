package launch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
)

// env returns the getenv of an environment written as lines of NAME=value.
func env(lines ...string) func(string) string {
	values := map[string]string{}
	for line := range strings.Lines(strings.Join(lines, "\n")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[name] = value
		}
	}
	return func(name string) string { return values[name] }
}

// What launchers really set, without irrelevant variables.
const (
	torchrunEnv = `
		LOCAL_RANK=1
		RANK=5
		GROUP_RANK=1
		ROLE_RANK=5
		ROLE_NAME=default
		LOCAL_WORLD_SIZE=4
		WORLD_SIZE=8
		GROUP_WORLD_SIZE=2
		ROLE_WORLD_SIZE=8
		MASTER_ADDR=node-a
		MASTER_PORT=29500
		TORCHELASTIC_RESTART_COUNT=0
		TORCHELASTIC_MAX_RESTARTS=0
		TORCHELASTIC_RUN_ID=7f3c
		TORCHELASTIC_USE_AGENT_STORE=False`

	carillonRunEnv = `
		RANK=3
		WORLD_SIZE=4
		LOCAL_RANK=1
		LOCAL_WORLD_SIZE=2
		MASTER_ADDR=127.0.0.1
		MASTER_PORT=41373
		CARILLON_JOB=digits-9f86
		CARILLON_JOB_SECRET=60303ae22b998861bce3b28f33eec1be`

	// mpirun -n 2 env, Open MPI 4.1.4, rank 1.
	mpirunEnv = `
		OMPI_APP_CTX_NUM_PROCS=2
		OMPI_COMM_WORLD_LOCAL_RANK=1
		OMPI_COMM_WORLD_LOCAL_SIZE=2
		OMPI_COMM_WORLD_NODE_RANK=1
		OMPI_COMM_WORLD_RANK=1
		OMPI_COMM_WORLD_SIZE=2
		OMPI_MCA_ess_base_jobid=1138032641
		OMPI_MCA_ess_base_vpid=1
		OMPI_MCA_orte_hnp_uri=1138032640.0;tcp://192.0.2.2:43663;tcp6://[fd00::2]:38423
		OMPI_MCA_orte_local_daemon_uri=1138032640.0;tcp://192.0.2.2:43663;tcp6://[fd00::2]:38423
		OMPI_MCA_orte_num_nodes=1
		OMPI_MCA_orte_precondition_transports=f804fa9ddd06315a-2fc8ce4017d7f780
		OMPI_UNIVERSE_SIZE=2
		PMIX_NAMESPACE=1138032641
		PMIX_RANK=1
		PMIX_SERVER_URI41=1138032640.0;tcp4://127.0.0.1:54443`

	// mpiexec -n 2 env, MPICH 4.0.2, rank 1.
	mpiexecEnv = `
		GFORTRAN_UNBUFFERED_PRECONNECTED=y
		HYDI_CONTROL_FD=7
		MPIR_CVAR_CH3_INTERFACE_HOSTNAME=node-a
		MPI_LOCALNRANKS=2
		MPI_LOCALRANKID=1
		PMI_FD=8
		PMI_RANK=1
		PMI_SIZE=2`

	// A pod of an Indexed Job, whose Service is called train-svc and whose container sets WORLD_SIZE.
	podEnv = `
		HOSTNAME=train-3
		JOB_COMPLETION_INDEX=3
		KUBERNETES_SERVICE_HOST=10.0.0.1
		WORLD_SIZE=4`

	// srun in an allocation of three nodes, task 5.
	srunEnv = `
		SLURM_JOB_ID=200505
		SLURM_JOBID=200505
		SLURM_JOB_NODELIST=gnode[10,20,25,37]
		SLURM_NODELIST=gnode[20,25,37]
		SLURM_JOB_NUM_NODES=4
		SLURM_NTASKS=7
		SLURM_NPROCS=7
		SLURM_TASKS_PER_NODE=3(x2),1
		SLURM_PROCID=5
		SLURM_LOCALID=2
		SLURM_NODEID=1
		SLURM_STEP_ID=2
		SLURM_STEPID=2
		SLURM_STEP_NODELIST=gnode[20,25,37]
		SLURM_STEP_NUM_NODES=3
		SLURM_STEP_NUM_TASKS=7
		SLURM_STEP_TASKS_PER_NODE=3(x2),1
		SLURM_STEP_LAUNCHER_PORT=37465`

	// The batch script of a job, which runs once, whatever the number of tasks.
	sbatchEnv = `
		SLURM_JOB_ID=200505
		SLURM_JOB_NODELIST=gnode[10,20,25,37]
		SLURM_NTASKS=4
		SLURM_NPROCS=4
		SLURM_TASKS_PER_NODE=1(x4)
		SLURM_PROCID=0
		SLURM_LOCALID=0
		SLURM_NODEID=0
		SLURM_GTIDS=0`
)

func TestFromEnv(t *testing.T) {
	secret := []byte("60303ae22b998861bce3b28f33eec1be")
	for _, test := range []struct {
		name string
		env  string
		want World
	}{
		{"nothing", "", World{Size: 1, LocalSize: 1, Launcher: None}},
		{"a lone world size of one", "WORLD_SIZE=1", World{Size: 1, LocalSize: 1, Launcher: None}},
		{
			"torchrun", torchrunEnv,
			World{
				Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4, Address: "node-a:29500", Job: "torchrun-7f3c",
				Launcher: Torchrun,
			},
		},
		{
			"torchrun, whose agent has the port", torchrunEnv + "\nTORCHELASTIC_USE_AGENT_STORE=True",
			World{
				Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4, Address: "node-a:23406", Job: "torchrun-7f3c",
				Launcher: Torchrun,
			},
		},
		{
			"torchrun, restarted", torchrunEnv + "\nTORCHELASTIC_RESTART_COUNT=2",
			World{
				Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4, Address: "node-a:29500", Job: "torchrun-7f3c-restart-2",
				Launcher: Torchrun,
			},
		},
		{
			"torchrun, whose id is a path", torchrunEnv + "\nTORCHELASTIC_RUN_ID=lab/7f3c",
			World{
				Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4, Address: "node-a:29500",
				Job: "torchrun-lab_7f3c-27fcc9c1", Launcher: Torchrun,
			},
		},
		{
			"torchrun, whose id is long", torchrunEnv + "\nTORCHELASTIC_RUN_ID=" + strings.Repeat("é", 40),
			World{
				Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4, Address: "node-a:29500",
				Job: "torchrun-" + strings.Repeat("é", 22) + "-f905bd4c", Launcher: Torchrun,
			},
		},
		{
			"carillon run", carillonRunEnv,
			World{
				Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2, Address: "127.0.0.1:41373", Job: "digits-9f86",
				Secret: secret, Launcher: PyTorch,
			},
		},
		{
			"init_method env:// without local ranks", "RANK=0\nWORLD_SIZE=2\nMASTER_ADDR=::1\nMASTER_PORT=29500",
			World{Size: 2, LocalRank: -1, Address: "[::1]:29500", Launcher: PyTorch},
		},
		{
			"one rank of init_method env:// needs no master", "RANK=0\nWORLD_SIZE=1",
			World{Size: 1, LocalRank: -1, Launcher: PyTorch},
		},
		{
			"mpirun on one host", mpirunEnv,
			World{
				Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Address: "127.0.0.1:23673", Job: "openmpi-1138032641",
				Secret: []byte("f804fa9ddd06315a-2fc8ce4017d7f780"), Launcher: OpenMPI,
			},
		},
		{
			"mpirun on two hosts", mpirunEnv + "\nOMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_RANK=3",
			World{
				Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2, Address: "192.0.2.2:23673", Job: "openmpi-1138032641",
				Secret: []byte("f804fa9ddd06315a-2fc8ce4017d7f780"), Launcher: OpenMPI,
			},
		},
		{
			"srun", srunEnv,
			World{
				Rank: 5, Size: 7, LocalRank: 2, LocalSize: 3, Address: "gnode20:12969", Job: "slurm-200505.2",
				Launcher: Slurm,
			},
		},
		{
			"srun with a master", srunEnv + "\nMASTER_ADDR=gnode25\nMASTER_PORT=7000\nWORLD_SIZE=7",
			World{
				Rank: 5, Size: 7, LocalRank: 2, LocalSize: 3, Address: "gnode25:7000", Job: "slurm-200505.2",
				Launcher: Slurm,
			},
		},
		{
			"srun with a master's port", srunEnv + "\nMASTER_PORT=7000",
			World{
				Rank: 5, Size: 7, LocalRank: 2, LocalSize: 3, Address: "gnode20:7000", Job: "slurm-200505.2",
				Launcher: Slurm,
			},
		},
		{
			"mpirun on two hosts with IPv6 alone", strings.ReplaceAll(mpirunEnv, "tcp://192.0.2.2:43663;", "") +
				"\nOMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_RANK=3",
			World{
				Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2, Address: "[fd00::2]:23673", Job: "openmpi-1138032641",
				Secret: []byte("f804fa9ddd06315a-2fc8ce4017d7f780"), Launcher: OpenMPI,
			},
		},
		{
			"mpiexec on one host", mpiexecEnv + "\nMASTER_PORT=4000",
			World{Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Address: "127.0.0.1:4000", Launcher: MPICH},
		},
		{
			"mpiexec on two hosts", mpiexecEnv + "\nPMI_SIZE=4\nPMI_RANK=3\nMASTER_ADDR=node-a\nMASTER_PORT=4000",
			World{Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2, Address: "node-a:4000", Launcher: MPICH},
		},
		{
			"mpiexec -n 1", mpiexecEnv + "\nPMI_SIZE=1\nPMI_RANK=0\nMPI_LOCALNRANKS=1\nMPI_LOCALRANKID=0",
			World{Size: 1, LocalSize: 1, Launcher: MPICH},
		},
		{
			"another launcher that speaks PMI", "PMI_FD=3\nPMI_RANK=5\nPMI_SIZE=6\nCARILLON_ADDRESS=node-a:4000",
			World{Rank: 5, Size: 6, LocalRank: -1, Address: "node-a:4000", Launcher: MPICH},
		},
		{
			"mpiexec in a step that starts its proxies", srunEnv + mpiexecEnv + "\nMASTER_ADDR=n\nMASTER_PORT=4000",
			World{Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Address: "n:4000", Launcher: MPICH},
		},
		{
			"srun --mpi=pmi2", srunEnv + "\nPMI_RANK=5\nPMI_SIZE=7\nPMI_FD=3",
			World{
				Rank: 5, Size: 7, LocalRank: 2, LocalSize: 3, Address: "gnode20:12969", Job: "slurm-200505.2",
				Launcher: Slurm,
			},
		},
		{
			"PMIx, with a size", "PMIX_RANK=2\nPMIX_NAMESPACE=prterun-a@1\nWORLD_SIZE=3\nMASTER_ADDR=node-a",
			World{
				Rank: 2, Size: 3, LocalRank: -1, Address: "node-a:26169", Job: "pmix-prterun-a@1", Launcher: PMIx,
			},
		},
		{
			"a pod of an Indexed Job", podEnv + "\nMASTER_ADDR=train-0.train-svc",
			World{
				Rank: 3, Size: 4, LocalRank: -1, Address: "train-0.train-svc:21474", Job: "kubernetes-train",
				Launcher: Kubernetes,
			},
		},
		{
			"a pod of a JobSet, restarted",
			podEnv + "\nHOSTNAME=llm-workers-0-3.llm.default.svc\nJOBSET_NAME=llm\nJOBSET_RESTART_ATTEMPT=2",
			World{
				Rank: 3, Size: 4, LocalRank: -1, Address: "llm-workers-0-0.llm:12517",
				Job: "kubernetes-llm-workers-0-restart-2", Launcher: Kubernetes,
			},
		},
		{
			"a pod in its host's network",
			podEnv + "\nHOSTNAME=node7\nCARILLON_ADDRESS=node1:4000\nCARILLON_WORLD_SIZE=5",
			World{Rank: 3, Size: 5, LocalRank: -1, Address: "node1:4000", Launcher: Kubernetes},
		},
		{
			"a pod that is a world of its own", podEnv + "\nWORLD_SIZE=1", World{Size: 1, LocalSize: 1, Launcher: None},
		},
		{
			"a batch script is no rank", sbatchEnv,
			World{
				Size: 1, LocalSize: 1, Launcher: None, Doubt: "SLURM_NTASKS is 4, and it is srun that starts the ranks",
			},
		},
		{
			"torchrun inside of srun", srunEnv + torchrunEnv,
			World{
				Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4, Address: "node-a:29500", Job: "torchrun-7f3c",
				Launcher: Torchrun,
			},
		},
		{
			"mpirun inside of a batch script", sbatchEnv + mpirunEnv,
			World{
				Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Address: "127.0.0.1:23673", Job: "openmpi-1138032641",
				Secret: []byte("f804fa9ddd06315a-2fc8ce4017d7f780"), Launcher: OpenMPI,
			},
		},
		{
			"CARILLON_ alone",
			"CARILLON_RANK=1\nCARILLON_WORLD_SIZE=3\nCARILLON_ADDRESS=10.0.0.1:4000\nCARILLON_LOCAL_RANK=0",
			World{Rank: 1, Size: 3, Address: "10.0.0.1:4000", Launcher: Carillon},
		},
		{
			"CARILLON_ over all", torchrunEnv + mpirunEnv + srunEnv +
				"\nCARILLON_RANK=2\nCARILLON_WORLD_SIZE=3\nCARILLON_ADDRESS=10.0.0.1:4000\nCARILLON_JOB=mine",
			World{Rank: 2, Size: 3, LocalRank: -1, Address: "10.0.0.1:4000", Job: "mine", Launcher: Carillon},
		},
		{
			"CARILLON_ over one thing", torchrunEnv + "\nCARILLON_ADDRESS=10.0.0.1:4000",
			World{
				Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4, Address: "10.0.0.1:4000", Job: "torchrun-7f3c",
				Launcher: Torchrun,
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := FromEnv(env(test.env))
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Secret) == 0 {
				got.Secret = nil
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if id, err := got.UniqueID(0); err != nil || id.Valid() != nil {
				t.Errorf("its unique id: %v, %v", err, id.Valid())
			}
		})
	}
}

func TestProblemsAreAllNamed(t *testing.T) {
	for _, test := range []struct {
		name string
		env  string
		want []string // one line each
	}{
		{
			"everything absurd", "RANK=-1\nWORLD_SIZE=four\nLOCAL_RANK=x\nMASTER_ADDR=host\nMASTER_PORT=99999",
			[]string{
				`WORLD_SIZE="four": it must be a whole number from 1 to 16384`,
				`RANK="-1": it must be a whole number from 0 to 16383`,
				`LOCAL_RANK="x": it must be a whole number from 0 to 16383`,
				`MASTER_PORT="99999": it must be a whole number from 1 to 65535`,
			},
		},
		{
			"a job that no folder can be called", "CARILLON_JOB=lab/train",
			[]string{
				`CARILLON_JOB="lab/train": it must be a name for a folder: at most 63 bytes, no slash or control ` +
					`character, and no dot before it`,
			},
		},
		{
			"a rank and nothing else", "RANK=3",
			[]string{
				`WORLD_SIZE is not set: it must be a whole number from 1 to 16384`,
				`MASTER_PORT is not set: it must be a port that is free on rank 0's host, 1 to 65535 (or set ` +
					`CARILLON_ADDRESS=host:port)`,
				`MASTER_ADDR is not set: it must be the host of rank 0, a name or an address (or set ` +
					`CARILLON_ADDRESS=host:port)`,
			},
		},
		{
			"nowhere to meet", "RANK=0\nWORLD_SIZE=2",
			[]string{
				`MASTER_PORT is not set: it must be a port that is free on rank 0's host, 1 to 65535 (or set ` +
					`CARILLON_ADDRESS=host:port)`,
				`MASTER_ADDR is not set: it must be the host of rank 0, a name or an address (or set ` +
					`CARILLON_ADDRESS=host:port)`,
			},
		},
		{
			"a size without a rank", "WORLD_SIZE=4",
			[]string{`RANK is not set: WORLD_SIZE is "4", so it must be this process's rank`},
		},
		{
			"Open MPI's size without a rank", "OMPI_COMM_WORLD_SIZE=4",
			[]string{`OMPI_COMM_WORLD_RANK is not set: OMPI_COMM_WORLD_SIZE is "4", so it must be this process's rank`},
		},
		{
			"mpiexec without a port", mpiexecEnv,
			[]string{
				`MASTER_PORT is not set: it must be a port that is free on rank 0's host, 1 to 65535 (or set ` +
					`CARILLON_ADDRESS=host:port); mpiexec -genv NAME value sets a variable`,
			},
		},
		{
			"PMIx, whose size nobody says", "PMIX_RANK=0\nPMIX_NAMESPACE=a",
			[]string{
				`WORLD_SIZE is not set: it must be the number of ranks, which PMIx tells to MPI alone; ` +
					`PMIX_RANK is "0"`,
			},
		},
		{
			"an Indexed Job of which nobody says how large it is", "HOSTNAME=train-3\nJOB_COMPLETION_INDEX=3",
			[]string{
				`WORLD_SIZE is not set: it must be the Job's number of completions, or 1 where each pod is a world ` +
					`of its own; JOB_COMPLETION_INDEX is "3"`,
			},
		},
		{
			"an Indexed Job without a master", podEnv,
			[]string{
				`MASTER_ADDR is not set: it must be the host of rank 0, a name or an address (or set ` +
					`CARILLON_ADDRESS=host:port); rank 0's is train-0.SERVICE, where SERVICE is the headless Service ` +
					`that the pods have as their subdomain`,
			},
		},
		{
			"a pod of a JobSet's second Job", podEnv + "\nHOSTNAME=llm-workers-1-3\nJOBSET_NAME=llm",
			[]string{
				`RANK is not set: HOSTNAME is "llm-workers-1-3", a pod of Job 1 of a JobSet, and ` +
					`JOB_COMPLETION_INDEX counts the pods of each Job from 0`,
			},
		},
		{
			"a rank too many", "RANK=4\nWORLD_SIZE=4\nMASTER_ADDR=h\nMASTER_PORT=1",
			[]string{`RANK="4": it must be a whole number from 0 to 3`},
		},
		{
			"half of CARILLON_", "CARILLON_RANK=1",
			[]string{`CARILLON_WORLD_SIZE is not set: CARILLON_RANK is "1", so it must be the number of ranks`},
		},
		{
			"an address without a port", "CARILLON_RANK=0\nCARILLON_WORLD_SIZE=2\nCARILLON_ADDRESS=localhost",
			[]string{
				`CARILLON_ADDRESS="localhost": invalid argument: the world's address "localhost" is not host:port`,
			},
		},
		{
			"a short secret, and not shown", carillonRunEnv + "\nCARILLON_JOB_SECRET=hush",
			[]string{
				`CARILLON_JOB_SECRET="(4 bytes)": the secret must have 16 to 4096 bytes; ` +
					`openssl rand -hex 32 makes one`,
			},
		},
		{
			"two secrets", carillonRunEnv + "\nCARILLON_JOB_SECRET_FILE=/run/secret",
			[]string{`CARILLON_JOB_SECRET_FILE="/run/secret": CARILLON_JOB_SECRET is set too; set one of them`},
		},
		{"a list of nodes cut off", srunEnv + "\nSLURM_STEP_NODELIST=gnode[20,2", []string{
			`SLURM_STEP_NODELIST="gnode[20,2": it must be a list of hosts such as n[01-03,7]`,
		}},
		{"tasks by node", srunEnv + "\nSLURM_STEP_TASKS_PER_NODE=3(xtwo)", []string{
			`SLURM_STEP_TASKS_PER_NODE="3(xtwo)": it must be numbers of tasks such as 4(x2),3`,
		}},
		{
			"a local rank beyond its host", torchrunEnv + "\nLOCAL_RANK=4",
			[]string{`LOCAL_RANK="4": this host has 4 ranks, so it must be from 0 to 3`},
		},
		{
			"mpirun from a host that runs no rank",
			mpirunEnv + "\nOMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_RANK=0\n" +
				"OMPI_MCA_orte_local_daemon_uri=1138032640.1;tcp://192.0.2.3:40001",
			[]string{
				`OMPI_MCA_orte_local_daemon_uri="1138032640.1;tcp://192.0.2.3:40001": rank 0 is not on mpirun's ` +
					`host, where the others look for it; say where it is with mpirun -x CARILLON_ADDRESS=host:port`,
			},
		},
		{
			"an override that contradicts the launcher", torchrunEnv + "\nCARILLON_WORLD_SIZE=4",
			[]string{`CARILLON_WORLD_SIZE="4": this process is rank 5, so it must be at least 6`},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, err := FromEnv(env(test.env))
			if err == nil {
				t.Fatalf("taken as %+v", w)
			}
			if diff := cmp.Diff(test.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			var variable *VariableError
			if !errors.As(err, &variable) || !errors.Is(err, lifecycle.ErrInvalidArgument) ||
				lifecycle.CodeOf(err) != lifecycle.CodeInvalidArgument {
				t.Errorf("not a VariableError with its code: %#v", err)
			}
			if strings.Contains(err.Error(), "hush") {
				t.Error("the secret is in the error")
			}
		})
	}
}

func TestSecretFromFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	const secret = "60303ae22b998861bce3b28f33eec1be"
	if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	base := strings.Replace(carillonRunEnv, "CARILLON_JOB_SECRET=", "UNUSED=", 1)
	byFile, err := FromEnv(env(base + "\nCARILLON_JOB_SECRET_FILE=" + path))
	if err != nil {
		t.Fatal(err)
	}
	byValue, err := FromEnv(env(carillonRunEnv))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(byValue, byFile); diff != "" {
		t.Errorf("by value and by file differ:\n%s", diff)
	}
	if alone, err := Secret(env("CARILLON_JOB_SECRET_FILE=" + path)); err != nil || string(alone) != secret {
		t.Errorf("the secret alone is %q, %v", alone, err)
	}
	if _, err := FromEnv(env(base + "\nCARILLON_JOB_SECRET_FILE=" + path + ".gone")); err == nil ||
		!strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := FromEnv(env(base + "\nCARILLON_JOB_SECRET_FILE=" + large)); err == nil ||
		!strings.Contains(err.Error(),
			"16 to 4096 bytes") {
		t.Errorf("a file that is no secret: %v", err)
	}
}

func TestUniqueID(t *testing.T) {
	base := World{Rank: 0, Size: 4, Address: "node-a:4000", Job: "job", Secret: []byte("0123456789abcdef")}
	id := func(w World, n int) lifecycle.UniqueID {
		t.Helper()
		id, err := w.UniqueID(n)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	same := base
	same.Rank, same.Address = 3, "10.0.0.7:4000" // another rank, which knows rank 0's host by another name
	a, b := id(base, 0), id(same, 0)
	if lifecycle.RootCommID(a) != lifecycle.RootCommID(b) || string(a.Secret()) != string(b.Secret()) {
		t.Error("ranks of one job derive different ids")
	}
	if b.Address() != "10.0.0.7:4000" {
		t.Errorf("the id leads to %s", b.Address())
	}
	if id(base, 0) != a {
		t.Error("the id is not the same each time")
	}
	for name, change := range map[string]func(*World) int{
		"another job":    func(w *World) int { w.Job = "job2"; return 0 },
		"another secret": func(w *World) int { w.Secret = []byte("0123456789abcdeg"); return 0 },
		"another port":   func(w *World) int { w.Address = "node-a:4001"; return 0 },
		"another world":  func(*World) int { return 1 },
		"job and secret run together": func(w *World) int {
			w.Job, w.Secret = w.Job+string(w.Secret[:1]), w.Secret[1:]
			return 0
		},
	} {
		w := base
		n := change(&w)
		if c := id(w, n); lifecycle.RootCommID(c) == lifecycle.RootCommID(a) ||
			string(c.Secret()) == string(a.Secret()) {
			t.Errorf("%s derives the same id", name)
		}
	}
	if one, other := id(alone(), 0), id(alone(), 0); one == other {
		t.Error("two lone processes share an id")
	}
	if _, err := (World{Size: 2, Address: "nowhere"}).UniqueID(0); !errors.Is(err, lifecycle.ErrInvalidArgument) {
		t.Errorf("an address without a port: %v", err)
	}
}

func TestListenAddress(t *testing.T) {
	for _, test := range []struct {
		world World
		want  string
	}{
		{World{Size: 4, LocalSize: 4, Address: "127.0.0.1:4000"}, "127.0.0.1:4000"},
		{World{Size: 4, LocalSize: 4, Address: "localhost:4000"}, "localhost:4000"},
		{World{Size: 4, LocalSize: 4, Address: "[::1]:4000"}, "[::1]:4000"},
		{World{Size: 4, LocalSize: 2, Address: "localhost:4000"}, ":4000"},
		{World{Size: 4, LocalSize: 0, Address: "127.0.1.1:4000"}, ":4000"},
		{World{Size: 4, LocalSize: 4, Address: "node-a:4000"}, ":4000"},
	} {
		if got := test.world.ListenAddress(); got != test.want {
			t.Errorf("%+v listens at %q, not %q", test.world, got, test.want)
		}
	}
}
