package launch

import (
	"hash/fnv"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// The launchers.
const (
	Carillon   = "carillon"
	Torchrun   = "torchrun"
	PyTorch    = "pytorch"
	OpenMPI    = "openmpi"
	MPICH      = "mpich"
	Slurm      = "slurm"
	PMIx       = "pmix"
	Kubernetes = "kubernetes"
	None       = "none"
)

const (
	firstPort   = 12000 // the first port that is derived from a job's name
	numPorts    = 20000 // so that all are below the kernel's ephemeral range, from 32768
	unknownRank = -1
)

// launcher returns this process's place, by the first launcher whose variables are set. A launcher that another one
// starts, such as mpiexec in a batch script, takes precedence.
func (e *environment) launcher() World {
	step := e.has("SLURM_PROCID") && e.has("SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", "SLURM_STEPID")
	switch {
	case e.has("CARILLON_RANK") && e.has("CARILLON_WORLD_SIZE"):
		return e.carillon()
	case e.has("RANK"):
		return e.torch()
	case e.has("OMPI_COMM_WORLD_RANK"):
		return e.openMPI()
	case e.has("PMI_RANK") && (!step || e.has("MPI_LOCALNRANKS")): // Slurm's PMI-2 sets only the former
		return e.mpich()
	case step:
		return e.slurm()
	case e.has("PMIX_RANK"):
		return e.pmix()
	case e.has("JOB_COMPLETION_INDEX") && e.get("WORLD_SIZE") != "1" && e.get("CARILLON_WORLD_SIZE") != "1":
		return e.kubernetes()
	}
	return e.alone()
}

// alone is the world of a process without a launcher. A launcher's size without a rank is an error.
func (e *environment) alone() World {
	for _, pair := range [][2]string{
		{"RANK", "WORLD_SIZE"},
		{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
		{"PMI_RANK", "PMI_SIZE"},
		{"CARILLON_RANK", "CARILLON_WORLD_SIZE"},
	} {
		if size := e.get(pair[1]); size != "" && size != "1" {
			e.problem(pair[0], "", "%s is %q, so it must be this process's rank", pair[1], size)
		}
	}
	if rank := e.get("CARILLON_RANK"); rank != "" && rank != "0" {
		e.problem("CARILLON_WORLD_SIZE", "", "CARILLON_RANK is %q, so it must be the number of ranks", rank)
	}
	w := alone()
	if n := e.get("SLURM_NTASKS"); n != "" && n != "1" {
		w.Doubt = "SLURM_NTASKS is " + n + ", and it is srun that starts the ranks"
	}
	return w
}

// carillon is a user's own launcher; overrides reads its variables.
func (e *environment) carillon() World {
	w := e.world(Carillon, "CARILLON_RANK", "CARILLON_WORLD_SIZE")
	e.master(&w, "", "")
	return w
}

// torch is torchrun, or a launcher that sets the same variables for PyTorch's init_method env://.
func (e *environment) torch() World {
	w := e.world(PyTorch, "RANK", "WORLD_SIZE")
	e.local(&w, "LOCAL_RANK", "LOCAL_WORLD_SIZE")
	if run := e.get("TORCHELASTIC_RUN_ID"); run != "" {
		w.Launcher = Torchrun
		w.Job = "torchrun-" + run + e.restarted("TORCHELASTIC_RESTART_COUNT")
		taken, _ := strconv.ParseBool(e.get("TORCHELASTIC_USE_AGENT_STORE"))
		if taken && e.has("MASTER_ADDR") && e.has("MASTER_PORT") {
			port := e.number(1, 65535, "MASTER_PORT")
			w.Address = net.JoinHostPort(e.get("MASTER_ADDR"), derivePort(w.Job+" "+strconv.Itoa(port)))
			return w
		}
	}
	e.master(&w, "", "")
	return w
}

func (e *environment) openMPI() World {
	w := e.world(OpenMPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
	e.local(&w, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
	if _, job := e.first("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"); job != "" {
		w.Job = "openmpi-" + job
	}
	w.Secret = []byte(e.get("OMPI_MCA_orte_precondition_transports"))
	e.master(&w, e.mpirunHost(&w), "mpirun -x NAME=value sets a variable")
	return w
}

// mpich is MPICH's mpiexec, Hydra, which Intel MPI and MVAPICH also use, or another launcher that speaks PMI, such as
// Flux or PALS. None of them says where rank 0 is, or sets a name that distinguishes jobs.
func (e *environment) mpich() World {
	w := e.world(MPICH, "PMI_RANK", "PMI_SIZE")
	e.local(&w, "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
	host := ""
	if w.LocalSize == w.Size {
		host = "127.0.0.1"
	}
	e.master(&w, host, "mpiexec -genv NAME value sets a variable")
	return w
}

// pmix is a launcher known only to support PMIx. Only a client of its PMIx server learns the size.
func (e *environment) pmix() World {
	w := e.known(PMIx, "PMIX_RANK", "it must be the number of ranks, which PMIx tells to MPI alone")
	if namespace := e.get("PMIX_NAMESPACE"); namespace != "" {
		w.Job = "pmix-" + namespace
	}
	e.master(&w, "", "")
	return w
}

// kubernetes is a pod of an Indexed Job, which may belong to a JobSet. Such a pod's host name ends with its numbers.
func (e *environment) kubernetes() World {
	w := e.known(Kubernetes, "JOB_COMPLETION_INDEX", "it must be the Job's number of completions, or 1 where each pod "+
		"is a world of its own")
	pod, _, _ := strings.Cut(e.get("HOSTNAME"), ".")
	job, indexed := strings.CutSuffix(pod, "-"+e.get("JOB_COMPLETION_INDEX"))
	set := e.get("JOBSET_NAME")
	if !indexed || !strings.HasPrefix(job, set) {
		e.master(&w, "", "")
		return w
	}
	w.Job = "kubernetes-" + job + e.restarted("JOBSET_RESTART_ATTEMPT")
	if set != "" {
		if of, first := strings.CutSuffix(job, "-0"); first {
			e.master(&w, of+"-0-0."+set, "")
		} else {
			e.problem("RANK", "",
				"HOSTNAME is %q, a pod of Job %s of a JobSet, and JOB_COMPLETION_INDEX counts the pods of "+
					"each Job from 0", pod, job[strings.LastIndexByte(job, '-')+1:])
		}
		return w
	}
	e.master(&w, "",
		"rank 0's is "+job+"-0.SERVICE, where SERVICE is the headless Service that the pods have as their subdomain")
	return w
}

// known is world for a launcher that sets a rank but no size. The user must set the size; must says to which value.
func (e *environment) known(launcher, rank, must string) World {
	const size, own = "WORLD_SIZE", "CARILLON_WORLD_SIZE"
	if e.has(own, size) {
		return e.world(launcher, rank, own, size)
	}
	e.problem(size, "", "%s; %s is %q", must, rank, e.get(rank))
	return World{Launcher: launcher, Size: 1, LocalRank: unknownRank}
}

// mpirunHost is the host at which the ranks that mpirun started meet; empty if unknown.
func (e *environment) mpirunHost(w *World) string {
	if w.LocalSize == w.Size {
		return "127.0.0.1"
	}
	if e.has("CARILLON_ADDRESS", "CARILLON_RENDEZVOUS", "MASTER_ADDR") {
		return "" // not needed, so not checked either
	}
	const name = "OMPI_MCA_orte_hnp_uri"
	uri := e.get(name)
	if uri == "" {
		return ""
	}
	host := mpirunIPv4.FindStringSubmatch(uri)
	if host == nil {
		host = mpirunIPv6.FindStringSubmatch(uri)
	}
	if host == nil || net.ParseIP(host[1]) == nil {
		e.problem(name, uri,
			"no address of mpirun is in it; say where rank 0 is with mpirun -x CARILLON_ADDRESS=host:port")
		return ""
	}
	if local := e.get("OMPI_MCA_orte_local_daemon_uri"); w.Rank == 0 && local != "" && local != uri {
		e.problem("OMPI_MCA_orte_local_daemon_uri", local,
			"rank 0 is not on mpirun's host, where the others look for it; "+
				"say where it is with mpirun -x CARILLON_ADDRESS=host:port")
	}
	return host[1]
}

// The first addresses in Open MPI's "jobid.rank;tcp://a,b:port;tcp6://[c]:port".
var (
	mpirunIPv4 = regexp.MustCompile(`;tcp4?://([0-9.]+)`)
	mpirunIPv6 = regexp.MustCompile(`;tcp6?://\[*([0-9a-fA-F:]+)`)
)

func (e *environment) slurm() World {
	w := e.world(Slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
	w.LocalRank = e.optional(0, w.Size-1, w.LocalRank, "SLURM_LOCALID")
	w.LocalSize = e.slurmLocalSize()
	_, id := e.first("SLURM_JOB_ID", "SLURM_JOBID")
	if id == "" {
		e.problem("SLURM_JOB_ID", "", "Slurm sets it for every job")
	}
	_, step := e.first("SLURM_STEP_ID", "SLURM_STEPID")
	w.Job = "slurm-" + id + "." + step + e.restarted("SLURM_RESTART_COUNT")
	host := ""
	if !e.has("CARILLON_ADDRESS", "CARILLON_RENDEZVOUS", "MASTER_ADDR") {
		name, list := e.first("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
		host = firstHost(list)
		switch {
		case list == "":
			e.problem(name, "", "Slurm sets it in every step; or set CARILLON_ADDRESS=host:port")
			return w
		case host == "":
			e.problem(name, list, "it must be a list of hosts such as n[01-03,7]")
			return w
		}
	}
	e.master(&w, host, "")
	return w
}

// restarted ends the name of a restarted job, so that it gets its own port and id: the last attempt's processes may
// still hold the old ones.
func (e *environment) restarted(count string) string {
	if n := e.get(count); n != "" && n != "0" {
		return "-restart-" + n
	}
	return ""
}

// A list of hosts in Slurm's notation, where brackets hold numbers and ranges that each stand for one name.
const (
	slurmNumbers = `\[(\d+)(?:-\d+)?(?:,\d+(?:-\d+)?)*\]`
	slurmHost    = `(?:[-.\w]|` + slurmNumbers + `)+`
)

var (
	slurmHosts  = regexp.MustCompile(`^` + slurmHost + `(?:,` + slurmHost + `)*$`)
	slurmFirst  = regexp.MustCompile(`^` + slurmHost)
	slurmNumber = regexp.MustCompile(slurmNumbers)
)

// firstHost returns the first host of a list in Slurm's notation: "n[01-03,7],login" starts with n01. The whole list is
// checked, so that a truncated list isn't taken for a whole one. For anything else the result is empty.
func firstHost(list string) string {
	if !slurmHosts.MatchString(list) {
		return ""
	}
	return slurmNumber.ReplaceAllString(slurmFirst.FindString(list), "$1")
}

// slurmLocalSize reads how many ranks this node has from "4(x2),3", tasks by node, and the node's number.
func (e *environment) slurmLocalSize() int {
	name, list := e.first("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
	if list == "" || !e.has("SLURM_NODEID") {
		return 0
	}
	node := e.number(0, rendezvous.MaxRanks, "SLURM_NODEID")
	for item := range strings.SplitSeq(list, ",") {
		count, times, repeated := strings.Cut(strings.TrimSuffix(item, ")"), "(x")
		n, err := strconv.Atoi(count)
		nodes := 1
		if repeated && err == nil {
			nodes, err = strconv.Atoi(times)
		}
		if err != nil || n < 1 || nodes < 1 {
			e.problem(name, list, "it must be numbers of tasks such as 4(x2),3")
			return 0
		}
		if node < nodes {
			return n
		}
		node -= nodes
	}
	return 0
}

// master sets the address from MASTER_ADDR and MASTER_PORT. If they are unset, the launcher's host, and a port derived
// from the job's name, replace them. If one is still missing there must be a CARILLON_ADDRESS, unless the world is one
// rank. hint ends the error about a missing one.
func (e *environment) master(w *World, host, hint string) {
	if value := e.get("MASTER_ADDR"); value != "" {
		host = strings.Trim(value, "[]")
	}
	if e.has("CARILLON_ADDRESS", "CARILLON_RENDEZVOUS") {
		return
	}
	or := "(or set CARILLON_ADDRESS=host:port)"
	if hint != "" {
		or += "; " + hint
	}
	port := ""
	switch {
	case e.has("MASTER_PORT"):
		port = strconv.Itoa(e.number(1, 65535, "MASTER_PORT"))
	case w.Job != "":
		port = derivePort(w.Job)
	case w.Size > 1:
		e.problem("MASTER_PORT", "", "it must be a port that is free on rank 0's host, 1 to 65535 %s", or)
	}
	switch {
	case host == "" && w.Size > 1:
		e.problem("MASTER_ADDR", "", "it must be the host of rank 0, a name or an address %s", or)
	case host != "" && port != "":
		w.Address = net.JoinHostPort(host, port)
	}
}

func derivePort(job string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(job)) // never fails
	return strconv.Itoa(firstPort + int(h.Sum32()%numPorts))
}
