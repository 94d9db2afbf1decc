// Package launch reads from the environment which rank a process is, and where it meets the other ranks. It understands
// the environments of the usual launchers.
//
// The launcher is the first of these whose variables are set:
//
//	carillon  CARILLON_RANK and CARILLON_WORLD_SIZE
//	torchrun  RANK and WORLD_SIZE, with TORCHELASTIC_RUN_ID
//	pytorch   RANK and WORLD_SIZE: carillon run, Kubernetes operators, scripts
//	openmpi   OMPI_COMM_WORLD_RANK: mpirun
//	mpich     PMI_RANK and PMI_SIZE: mpiexec of MPICH, Intel MPI and MVAPICH (Hydra), and others that speak PMI
//	slurm     SLURM_PROCID, in a step: srun. A batch script itself has it too, and is no rank
//	pmix      PMIX_RANK: prterun. PMIx keeps the size to itself: WORLD_SIZE says it
//	kubernetes
//	          JOB_COMPLETION_INDEX: an Indexed Job, or a JobSet of one. WORLD_SIZE says how many completions it has
//	none      a world of one rank
//
// A launcher that sets a rank but no size, or a size but no rank, is an error, never a world of one.
//
// Each of these variables, if set, overrides the launcher's values, whatever the launcher:
//
//	CARILLON_RANK, CARILLON_WORLD_SIZE, CARILLON_LOCAL_RANK, CARILLON_LOCAL_WORLD_SIZE
//	CARILLON_ADDRESS          host:port at which rank 0 serves; over MASTER_ADDR and MASTER_PORT, over the launcher's
//	CARILLON_RENDEZVOUS       etcd://host:2379, where the ranks meet in place of rank 0: see package etcd
//	CARILLON_JOB              a name that the ranks share and no other job at that address has
//	CARILLON_JOB_SECRET       text of at least 16 bytes that the ranks share and nobody else knows, such as
//	                          openssl rand -hex 32 makes,
//	CARILLON_JOB_SECRET_FILE  or the path of a file with it
//
// # Where the ranks meet
//
// At CARILLON_RENDEZVOUS if it is set: then it doesn't matter where rank 0 is, and no port of its host is used. Else:
//
// MASTER_ADDR and MASTER_PORT if they are set. With torchrun, the port is usually taken by the store of its agent
// (TORCHELASTIC_USE_AGENT_STORE=True). Then, and if a launcher gives no port, the ranks derive one from the job's name:
// the same on all ranks, from 12000 to 31999, below Linux's ephemeral ports. If two jobs on a host collide, rank 0
// reports that the port is taken; CARILLON_ADDRESS chooses another.
//
// Slurm: the first host of SLURM_STEP_NODELIST, else SLURM_JOB_NODELIST, where rank 0 runs unless
// --distribution=arbitrary was asked for.
//
// Open MPI: 127.0.0.1 when all ranks are on one host (OMPI_COMM_WORLD_LOCAL_SIZE is OMPI_COMM_WORLD_SIZE); else
// mpirun's own host, the first address in OMPI_MCA_orte_hnp_uri of Open MPI 4. Rank 0 sees whether it runs there, and
// says so if it doesn't. Open MPI 5 doesn't say where mpirun is, so a job on several hosts needs mpirun -x
// CARILLON_ADDRESS=host:port.
//
// Hydra: 127.0.0.1 when all ranks are on one host (MPI_LOCALNRANKS is PMI_SIZE). It has no name for a job from which a
// port could be derived: use mpiexec -genv MASTER_PORT 29500, and with several hosts MASTER_ADDR, too.
//
// Kubernetes: in a JobSet, JOB-0-0.JOBSET, the first pod of its first Job. The container gets JOBSET_NAME, and
// JOBSET_RESTART_ATTEMPT where the set may be restarted, from the downward API. A plain Indexed Job needs a headless
// Service, the pods' subdomain, and MASTER_ADDR=JOB-0.SERVICE:
//
//	env:
//	  - {name: WORLD_SIZE, value: "4"}  # completions and parallelism
//	  - {name: MASTER_ADDR, value: train-0.train-svc}
//	  # in a JobSet, instead of MASTER_ADDR:
//	  - name: JOBSET_NAME
//	    valueFrom: {fieldRef: {fieldPath: "metadata.annotations['jobset.sigs.k8s.io/jobset-name']"}}
//	  - name: JOBSET_RESTART_ATTEMPT
//	    valueFrom: {fieldRef: {fieldPath: "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']"}}
//
// Several Jobs of a set don't form one world by themselves, as each counts its pods from 0: set RANK and WORLD_SIZE.
//
// # The secret
//
// The ranks authenticate each other by a secret. Without CARILLON_JOB_SECRET it is the key that Open MPI 4 makes for
// each job (OMPI_MCA_orte_precondition_transports); with the other launchers there is none, and the id is derived from
// the job's name and port. That keeps different jobs apart, and scanners out, but not a person who knows the job's name
// and reaches its port: on a network that you don't trust, set a secret. CARILLON_WIRE=encrypt, which encrypts what
// ranks send each other with keys derived from the secret, requires one.
//
// All child processes inherit an environment, and many crash reports contain it. CARILLON_JOB_SECRET_FILE keeps the
// secret out of it; carillon run passes the secret to its ranks in such a file, however it got it.
package launch
