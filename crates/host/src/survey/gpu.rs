//! GPUs, from the PCI bus and the files of their driver. No library of the driver is loaded (ADR 17).

use gpuaas_wire::task::{GpuFacts, MachineFacts};

use super::Tree;

const DEVICES: &str = "/sys/bus/pci/devices";
const NVIDIA: &str = "/proc/driver/nvidia";
/// PCI classes of GPUs. 3D controllers (data centre GPUs) of any vendor count; processing accelerators and other display controllers count
/// only for the vendors in [`VENDORS`], whose devices compute.
const CLASS_3D: &str = "0x0302";
const CLASS_ACCELERATOR: &str = "0x1200";
const CLASS_DISPLAY: &str = "0x03";
/// Vendors of GPUs for computing, by PCI id.
const VENDORS: [(&str, &str); 2] = [("0x10de", "NVIDIA"), ("0x1002", "AMD")];
/// Paths at which distributions keep the list of PCI device names.
const NAMES: [&str; 3] = ["/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids", "/usr/share/pci.ids"];

/// Returns the GPUs of a machine, in the order of their bus address, at most [`MachineFacts::GPUS_MAX`]. A sandbox reports only those in
/// its own folder.
pub fn gpus(tree: &Tree) -> Vec<GpuFacts> {
    let mut found = Vec::new();
    let mut names = None;
    for bus in tree.own_names(DEVICES) {
        let attribute =
            |what: &str| tree.own_text(&format!("{DEVICES}/{bus}/{what}")).unwrap_or_default().trim().to_owned();
        let (class, vendor, device) = (attribute("class"), attribute("vendor"), attribute("device"));
        if !is_gpu(&class, &vendor) || found.len() == MachineFacts::GPUS_MAX {
            continue;
        }
        let (vendor_id, device_id) = (vendor.trim_start_matches("0x"), device.trim_start_matches("0x"));
        let of_driver =
            tree.own_text(&format!("{NVIDIA}/gpus/{bus}/information")).and_then(|text| model_of_driver(&text));
        let model = of_driver.or_else(|| {
            let names =
                names.get_or_insert_with(|| NAMES.iter().find_map(|path| tree.own_text(path)).unwrap_or_default());
            name_in_list(names, vendor_id, device_id)
        });
        found.push(GpuFacts { pci_id: format!("{vendor_id}:{device_id}"), bus, model, memory_bytes: None });
    }
    found
}

/// Returns the version of NVIDIA's driver, if it is loaded.
pub fn driver_version(tree: &Tree) -> Option<String> {
    let text = tree.own_text(&format!("{NVIDIA}/version"))?;
    // `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 …`, or with `Open` and `for x86_64` in it.
    let is_version =
        |word: &&str| word.split('.').count() >= 2 && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

fn is_gpu(class: &str, vendor: &str) -> bool {
    let computes = VENDORS.iter().any(|(known, _)| *known == vendor);
    class.starts_with(CLASS_3D)
        || computes && (class.starts_with(CLASS_DISPLAY) || class.starts_with(CLASS_ACCELERATOR))
}

fn model_of_driver(text: &str) -> Option<String> {
    let (_, model) = text.lines().find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == "Model"))?;
    let model = model.trim();
    (!model.is_empty()).then(|| model.to_owned())
}

/// Returns a device's name from the list of PCI ids, with its vendor: `NVIDIA H200 SXM 141GB` for `GH100 [H200 SXM 141GB]`.
fn name_in_list(list: &str, vendor: &str, device: &str) -> Option<String> {
    let mut lines = list.lines().skip_while(|line| !line.starts_with(vendor) || line.starts_with('\t')).skip(1);
    let of_vendor = lines.by_ref().take_while(|line| line.starts_with('\t') || line.starts_with('#'));
    let name = of_vendor
        .filter_map(|line| line.strip_prefix('\t').filter(|line| !line.starts_with('\t')))
        .find_map(|line| line.strip_prefix(device))?
        .trim();
    let inner = name.split_once('[').and_then(|(_, inner)| inner.strip_suffix(']')).unwrap_or(name);
    let maker = VENDORS.iter().find(|(id, _)| id.trim_start_matches("0x") == vendor).map(|(_, maker)| *maker);
    Some(maker.map_or_else(|| inner.to_owned(), |maker| format!("{maker} {inner}")))
}

#[cfg(test)]
mod tests {
    use super::{super::tree::tests::machine, *};

    fn device(bus: &str, class: &str, vendor: &str, device: &str) -> Vec<(String, String)> {
        [("class", class), ("vendor", vendor), ("device", device)]
            .map(|(file, text)| (format!("{DEVICES}/{bus}/{file}"), format!("{text}\n")))
            .into()
    }

    fn machine_of(files: Vec<(String, String)>) -> (tempfile::TempDir, Tree) {
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        machine(&files)
    }

    const LIST: &str = "# comment\n1002  Advanced Micro Devices\n\t2335  Not this one\n10de  NVIDIA Corporation\n\t2330  GH100 [H100 SXM5 80GB]\n\
                        \t2335  GH100 [H200 SXM 141GB]\n\t\t10de 18be  H200\n\t26b9  AD102GL\n8086  Intel Corporation\n";

    #[test]
    fn gpus_are_found_by_class_and_named_by_driver_or_pci_ids() {
        let mut files = device("0000:3b:00.0", "0x030200", "0x10de", "0x2335");
        files.extend(device("0000:5e:00.0", "0x030200", "0x10de", "0x2335"));
        files.extend(device("0000:5f:00.0", "0x030000", "0x10de", "0x26b9"));
        files.extend(device("0000:60:00.0", "0x120000", "0x1002", "0x74a1"));
        files.extend(device("0000:00:02.0", "0x030000", "0x1a03", "0x2000"));
        files.extend(device("0000:01:00.0", "0x020000", "0x8086", "0x1572"));
        files.push((
            format!("{NVIDIA}/gpus/0000:3b:00.0/information"),
            "Model: \t\t NVIDIA H200\nIRQ:   \t\t 5\n".into(),
        ));
        files.push((NAMES[0].into(), LIST.into()));
        let (_folder, tree) = machine_of(files);
        let found: Vec<(String, Option<String>)> = gpus(&tree).into_iter().map(|gpu| (gpu.pci_id, gpu.model)).collect();
        let some = |text: &str| Some(text.to_owned());
        let expected = [
            ("10de:2335", some("NVIDIA H200")),
            ("10de:2335", some("NVIDIA H200 SXM 141GB")),
            ("10de:26b9", some("NVIDIA AD102GL")),
            ("1002:74a1", None),
        ];
        assert_eq!(found, expected.map(|(id, model)| (id.to_owned(), model)));
    }

    #[test]
    fn number_of_gpus_is_bounded() {
        let files = (0..200).flat_map(|bus| device(&format!("0000:{bus:02x}:00.0"), "0x030200", "0x10de", "0x2335"));
        let (_folder, tree) = machine_of(files.collect());
        assert_eq!(gpus(&tree).len(), MachineFacts::GPUS_MAX);
    }

    #[test]
    fn a_sandbox_claims_no_gpu_of_its_machine() {
        let (folder, _) = machine(&[]);
        let root = camino::Utf8PathBuf::from_path_buf(folder.path().to_owned()).unwrap();
        assert_eq!(gpus(&Tree::of_sandbox(root)), []);
    }

    #[test]
    fn driver_version_is_parsed_in_both_formats() {
        for text in [
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12.2.0\n",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (x@y)  Tue Mar  5\n",
        ] {
            let (_folder, tree) = machine(&[("/proc/driver/nvidia/version", text)]);
            assert_eq!(driver_version(&tree).as_deref(), Some("550.54.15"));
        }
        assert_eq!(driver_version(&machine(&[]).1), None);
    }
}
