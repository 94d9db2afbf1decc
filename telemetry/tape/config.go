package tape

// Config says where a process's tape lies and how large it is. The zero Config is a good one.
type Config struct {
	Dir     string // where the jobs' folders are; DefaultDir() if empty
	Job     string // the job's name, a folder under Dir; "default" if empty
	Host    string // the host's name; os.Hostname() if empty
	BootID  string // the host's boot id; the kernel's if empty
	Program string // what writes; the name of the executable if empty
	Version string // of Program; may be empty

	Slots       int // communicators that can be live at a time in the in-flight table
	LifeRecords int // records of the life ring
	OpRecords   int // records of the op ring
}
