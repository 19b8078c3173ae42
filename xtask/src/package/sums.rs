//! Checksum list of packages and its minisign signature, which `minisign -Vm SHA256SUMS -p KEY.pub` verifies.

use std::{fs, io::Cursor};

use anyhow::{Context, bail};
use camino::Utf8Path;
use minisign::{SecretKey, SecretKeyBox};

use crate::components::digest_of;

/// File name of the list.
const SUMS: &str = "SHA256SUMS";
/// File name of its signature.
const SIGNATURE: &str = "SHA256SUMS.minisig";

/// Lists every file in the folder, by name.
pub(crate) fn write(folder: &Utf8Path) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    for entry in folder.read_dir_utf8()? {
        let entry = entry?;
        if ![SUMS, SIGNATURE].contains(&entry.file_name()) {
            lines.push(format!("{}  {}\n", digest_of(entry.path())?.0, entry.file_name()));
        }
    }
    lines.sort_by(|one, other| one[64..].cmp(&other[64..]));
    Ok(fs::write(folder.join(SUMS), lines.concat())?)
}

/// Signs the list, or prints that it is unsigned.
pub(crate) fn sign(folder: &Utf8Path, key: Option<&Utf8Path>, password: Option<&Utf8Path>) -> anyhow::Result<()> {
    let Some(file) = key else {
        eprintln!("    {SUMS} is NOT SIGNED: no key was given (--sign-key)");
        return Ok(());
    };
    let key = secret_key(file, password).with_context(|| format!("reading the key {file}"))?;
    fs::write(folder.join(SIGNATURE), signature(&key, &fs::read(folder.join(SUMS))?)?)?;
    Ok(())
}

fn secret_key(file: &Utf8Path, password: Option<&Utf8Path>) -> anyhow::Result<SecretKey> {
    let text = fs::read_to_string(file)?;
    let boxed = || SecretKeyBox::from_string(text.trim()).context("the file is not a secret key of minisign");
    // A key without a password can be loaded directly.
    if let Ok(key) = boxed()?.into_unencrypted_secret_key() {
        return Ok(key);
    }
    let password = match password {
        Some(file) => {
            Some(fs::read_to_string(file).with_context(|| file.to_string())?.trim_end_matches('\n').to_owned())
        }
        None if std::io::IsTerminal::is_terminal(&std::io::stdin()) => None,
        None => bail!("the key has a password: name a file that contains it with --sign-password"),
    };
    boxed()?
        .into_secret_key(password)
        .context("the key cannot be decrypted: wrong password, or not a secret key of minisign")
}

/// Signs without a timestamp: signatures of the same list with the same key differ only in the randomness that hardens them.
fn signature(key: &SecretKey, list: &[u8]) -> anyhow::Result<String> {
    let signed = minisign::sign(None, key, Cursor::new(list), Some(&format!("file:{SUMS}")), Some("GPUaaS packages"));
    Ok(signed.context("signing the list")?.into_string())
}

#[cfg(test)]
mod tests {
    use minisign::{KeyPair, SignatureBox};

    use super::*;

    fn folder() -> (tempfile::TempDir, camino::Utf8PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(folder.path()).unwrap().to_owned();
        (folder, path)
    }

    #[test]
    fn checksum_list_names_every_package_once_in_order() {
        let (_kept, folder) = folder();
        for name in ["b.deb", "a.tar.gz", SUMS, SIGNATURE] {
            fs::write(folder.join(name), "").unwrap();
        }
        write(&folder).unwrap();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(fs::read_to_string(folder.join(SUMS)).unwrap(), format!("{empty}  a.tar.gz\n{empty}  b.deb\n"));
    }

    #[test]
    fn signature_is_valid_only_for_the_signed_list() {
        let (_kept, folder) = folder();
        let pair = KeyPair::generate_encrypted_keypair(Some("open sesame".to_owned())).unwrap();
        let (key, password) = (folder.join("key"), folder.join("password"));
        fs::write(&key, pair.sk.to_box(None).unwrap().into_string()).unwrap();
        fs::write(&password, "open sesame\n").unwrap();
        fs::write(folder.join(SUMS), "list").unwrap();
        sign(&folder, Some(&key), Some(&password)).unwrap();
        let signed = SignatureBox::from_string(&fs::read_to_string(folder.join(SIGNATURE)).unwrap()).unwrap();
        let holds = |list: &str| minisign::verify(&pair.pk, &signed, Cursor::new(list), true, false, false).is_ok();
        assert!(holds("list") && !holds("List"));
        fs::write(&password, "another").unwrap();
        assert!(sign(&folder, Some(&key), Some(&password)).is_err());
        fs::remove_file(folder.join(SIGNATURE)).unwrap();
        sign(&folder, None, None).unwrap();
        assert!(!folder.join(SIGNATURE).exists());
    }

    #[test]
    fn a_key_without_a_password_needs_none() {
        let (_kept, folder) = folder();
        let pair = KeyPair::generate_unencrypted_keypair().unwrap();
        fs::write(folder.join("key"), pair.sk.to_box(None).unwrap().into_string()).unwrap();
        assert!(secret_key(&folder.join("key"), None).is_ok());
        fs::write(folder.join("key"), "no key").unwrap();
        assert!(secret_key(&folder.join("key"), None).is_err());
    }
}
